package benchrun

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

func TestProgramIsFoundNextToBothyFirst(t *testing.T) {
	beside, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	if _, err := find(beside); !errors.Is(err, ErrNotInstalled) {
		t.Fatalf("found in empty folders: %v", err)
	}
	for _, folder := range []string{path, beside} { // the second is preferred
		want := filepath.Join(folder, Program)
		if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := find(beside); got != want || err != nil {
			t.Errorf("found %q, %v, and not %q", got, err, want)
		}
	}
}

// TestExecHandsTheRequestOver runs this test again as both programs.
func TestExecHandsTheRequestOver(t *testing.T) {
	want := Request{Bothy: filepath.Join(t.TempDir(), "bothy"), Key: "bothy_secret", Only: []string{"exec"}, Count: 2, Scale: 0.5, JSON: true}
	if os.Getenv("BENCHRUN_TEST_EXEC") != "" {
		want.Bothy = os.Getenv("BENCHRUN_TEST_EXEC")
		t.Fatal(Exec(want))
	}
	// It writes its environment to a file.
	script := "#!/bin/sh\n[ $# = 0 ] && printf %s \"$" + env + "\" >\"$0.request\"\n"
	program := filepath.Join(filepath.Dir(want.Bothy), Program)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(os.Args[0], "-test.run=^TestExecHandsTheRequestOver$")
	again.Env = append(os.Environ(), "BENCHRUN_TEST_EXEC="+want.Bothy)
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(program + ".request")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := FromEnv(); ok || err != nil {
		t.Errorf("a request without a caller: %v, %v", ok, err)
	}
	t.Setenv(env, string(text))
	if got, ok, err := FromEnv(); !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
}
