package specutils

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"gvisor.dev/gvisor/runsc/config"
)

type unreadable struct{}

func (unreadable) Read([]byte) (int, error) { return 0, errors.New("read") }

// A plain spec is not decoded by the decoder that it comes with; one that says more is.
func TestPlainSpecIsDecodedLeanly(t *testing.T) {
	const plain = `{"ociVersion":"1.0.0","process":{"args":["a"],"capabilities":{"bounding":["CAP_KILL"]}},"mounts":[{"destination":"/x","options":["ro"]}]}`
	var spec specs.Spec
	if err := decodeSpec([]byte(plain), json.NewDecoder(unreadable{}), &spec); err != nil {
		t.Fatal(err)
	}
	if got := spec.Process.Capabilities.Bounding; len(got) != 1 || got[0] != "CAP_KILL" || spec.Mounts[0].Options[0] != "ro" {
		t.Errorf("the spec is %+v", spec)
	}
	const more = `{"ociVersion":"1.0.0","linux":{"maskedPaths":["/proc/kcore"]}}`
	if err := decodeSpec([]byte(more), json.NewDecoder(unreadable{}), &spec); err == nil {
		t.Error("a spec that says more was decoded as if it did not")
	}
}

// TestReadingAPlainSpecPreparesLittle reads a plain spec in a process that has read none:
// encoding/json has then prepared only what the lean struct holds, and the first spec
// that says more takes it far more allocations, for all the rest.
func TestReadingAPlainSpecPreparesLittle(t *testing.T) {
	const again = "READ_A_SPEC"
	if os.Getenv(again) == "" {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), again+"=yes")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const rest = `"ociVersion":"1.0.0","process":{"args":["a"],"cwd":"/"},"root":{"path":"/r"}`
	plain, more := reading(t, `{`+rest+`}`), reading(t, `{`+rest+`,"linux":{"maskedPaths":["/proc/kcore"]}}`)
	t.Logf("%d and %d allocations", plain, more)
	if more < 2*plain {
		t.Errorf("a plain spec took %d allocations, and then one that says more %d", plain, more)
	}
}

// reading counts the allocations of one reading.
func reading(t *testing.T, text string) uint64 {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "config.json"))
	if err == nil {
		defer f.Close()
		_, err = f.WriteString(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ReadSpecFromFile("/", f, &config.Config{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
