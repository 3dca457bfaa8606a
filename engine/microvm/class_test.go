package microvm

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A forged description is refused before anything is allocated for it.
func TestClassIsChecked(t *testing.T) {
	good := class{RAMMB: 512, OpenMB: 256, OwnMB: 64, CPUs: maxCPUs}
	for name, change := range map[string]func(*class){
		"":                      func(*class) {},
		"no memory":             func(s *class) { s.RAMMB = 0 },
		"all memory there is":   func(s *class) { s.RAMMB = math.MaxInt },
		"negative memory":       func(s *class) { s.OwnMB = -1 },
		"memory that overflows": func(s *class) { s.OpenMB = math.MaxInt },
		"no processors":         func(s *class) { s.CPUs = 0 },
		"many processors":       func(s *class) { s.CPUs = 1 << 20 },
	} {
		s := good
		change(&s)
		b, err := json.Marshal(written{Class: s})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, name, b)
	}
	refused(t, "a long description", bytes.Repeat([]byte(" "), 1<<20))
	refused(t, "no description", []byte("{"))
}

// refused reads a description, which must be refused if its name says what is wrong.
func refused(t *testing.T, name string, description []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, shapeFile), description, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readWritten(dir)
	if name == "" && err != nil || name != "" && bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("%q: %v", name, err)
	}
}
