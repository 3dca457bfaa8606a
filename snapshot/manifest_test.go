package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func sealed(t *testing.T) (string, *Manifest) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, MemoryDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"memory/pages.img": strings.Repeat("page", 5000), "memory/checkpoint.img": "kernel", FilesTar: "tar"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Manifest{ID: "snp1", SandboxID: "sbx1", Kind: bothy.SnapshotMemory, Engine: "fake", EngineBuild: "b", GuestKey: "door"}
	if err := Seal(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestSealedSnapshotVerifies(t *testing.T) {
	dir, m := sealed(t)
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Parts) != 3 || got.Size() != 20000+6+3 || !got.Has(MemoryDir) || !got.Has(FilesTar) || got.ID != m.ID {
		t.Errorf("read %+v", got)
	}
	for _, strong := range []bool{false, true} {
		if err := Verify(t.Context(), dir, got, strong); err != nil {
			t.Error(err)
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a flipped bit": func(dir string) error {
			p := filepath.Join(dir, "memory/pages.img")
			b, err := os.ReadFile(p)
			if err == nil {
				b[12345] ^= 1
				err = os.WriteFile(p, b, 0o600)
			}
			return err
		},
		"a short file":   func(dir string) error { return os.Truncate(filepath.Join(dir, FilesTar), 2) },
		"a missing file": func(dir string) error { return os.Remove(filepath.Join(dir, "memory/checkpoint.img")) },
		"a link": func(dir string) error {
			p := filepath.Join(dir, FilesTar)
			os.Remove(p)
			return os.Symlink("/etc/passwd", p)
		},
		"another": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, MemoryDir, "more.img"), nil, 0o600)
		},
	} {
		dir, _ := sealed(t)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		m, err := Read(dir)
		if err == nil {
			err = Verify(t.Context(), dir, m, false)
		}
		if bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestThatCannotBeTrusted(t *testing.T) {
	dir, m := sealed(t)
	m.Parts[0].Name = "../../etc/passwd"
	if err := Verify(t.Context(), dir, m, false); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("a part outside: %v", err)
	}
	for text, code := range map[string]bothy.Code{
		"{": bothy.CodeSnapshotDamaged, `{"version": 99}`: bothy.CodeUnsupported,
	} {
		if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); bothy.ErrorCode(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Read(t.TempDir()); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("no manifest: %v", err)
	}
}
