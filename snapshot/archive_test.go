package snapshot

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

func init() { workFactor = 10 } // a guess may be cheap here

func exported(t *testing.T, passphrase string) []byte {
	t.Helper()
	dir, m := sealed(t)
	var b bytes.Buffer
	if err := Export(t.Context(), &b, dir, m, passphrase); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveTravels(t *testing.T) {
	for _, pass := range []string{"", "correct horse"} {
		b := exported(t, pass)
		if encrypted := !bytes.Contains(b, []byte("\x28\xb5\x2f\xfd")); encrypted != (pass != "") {
			t.Errorf("passphrase %q: encrypted is %v", pass, encrypted)
		}
		dir := t.TempDir()
		m, err := Import(t.Context(), bytes.NewReader(b), dir, pass)
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != "snp1" || !m.Has(MemoryDir) || !m.Has(FilesTar) {
			t.Errorf("imported %+v", m)
		}
		got, err := os.ReadFile(filepath.Join(dir, "memory/checkpoint.img"))
		if err != nil || string(got) != "kernel" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestArchiveThatCannotBeUsed(t *testing.T) {
	plain, locked := exported(t, ""), exported(t, "correct horse")
	flipped := bytes.Clone(plain)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		pass string
		code bothy.Code
	}{
		"nothing":           {nil, "", bothy.CodeSnapshotDamaged},
		"something else":    {[]byte("GIF89a, or so it says"), "", bothy.CodeSnapshotDamaged},
		"half of it":        {plain[:len(plain)/2], "", bothy.CodeSnapshotDamaged},
		"a flipped bit":     {flipped, "", bothy.CodeSnapshotDamaged},
		"something behind":  {append(bytes.Clone(plain), plain...), "", bothy.CodeSnapshotDamaged},
		"no passphrase":     {locked, "", bothy.CodeInvalid},
		"wrong passphrase":  {locked, "wrong", bothy.CodeInvalid},
		"a file outside":    {evil(t, "../../etc/cron.d/x"), "", bothy.CodeSnapshotDamaged},
		"a file not listed": {evil(t, "extra"), "", bothy.CodeSnapshotDamaged},
	} {
		if _, err := Import(t.Context(), bytes.NewReader(c.b), t.TempDir(), c.pass); bothy.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// evil is an archive with a file that is not a snapshot's.
func evil(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	manifest := `{"version":1,"id":"snp1","parts":[{"name":"` + name + `","size_bytes":1}]}`
	for _, f := range []struct{ name, text string }{{ManifestName, manifest}, {name, "x"}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(f.text))
	}
	w.Close()
	z.Close()
	return b.Bytes()
}
