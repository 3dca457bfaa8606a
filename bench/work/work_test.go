package work

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// here runs work on the host itself.
type here struct{}

func (here) Run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	return string(out), err
}

func (here) Unpack(_ context.Context, folder string, archive io.Reader) error {
	cmd := exec.Command("tar", "-x", "-C", folder)
	cmd.Stdin = archive
	return cmd.Run()
}

// TestTheWorkIsDone runs a small amount of each work that needs only the host. The programs themselves
// verify the result.
func TestTheWorkIsDone(t *testing.T) {
	for _, r := range Rows {
		if len(r.Needs) > 0 {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			s := NewSite("here", here{})
			s.Folder = t.TempDir()
			o, err := once(t, s, r, nil, 20/float64(max(20, r.Count)))
			if err != nil {
				t.Fatal(err)
			}
			if o <= 0 {
				t.Errorf("it took %v %s", o, r.Unit)
			}
		})
	}
}

// once does a row's work once and returns the time it took.
func once(t *testing.T, s *Site, r Row, m *Materials, scale float64) (took float64, err error) {
	err = s.Subject(r, m, scale).Once(t.Context(), func(measure string, value float64) {
		if measure != r.Name {
			t.Errorf("it is called %s, not %s", measure, r.Name)
		}
		took = value
	})
	return took, err
}

// says is a place where every command prints the same output.
type says string

func (s says) Run(context.Context, ...string) (string, error) { return string(s), nil }
func (says) Unpack(context.Context, string, io.Reader) error  { return nil }

func TestWorkThatWasNotDoneIsNoResult(t *testing.T) {
	for printed, want := range map[string]string{
		`{"seconds": 1, "did": 3, "wanted": 4}`: "3 of 4",
		`{"seconds": 1, "did": 0, "wanted": 0}`: "0 of 0",
		"Traceback":                             "Traceback",
	} {
		took, err := once(t, NewSite("liar", says(printed)), Rows[0], nil, 1)
		if err == nil || !strings.Contains(err.Error(), want) || took != 0 {
			t.Errorf("%s: %v, %v", printed, took, err)
		}
	}
}

func TestUnits(t *testing.T) {
	s := NewSite("fake", says("a warning\n"+`{"seconds": 2, "did": 4, "wanted": 4}`))
	for unit, want := range map[string]float64{"µs": 500_000, "ms": 2000} {
		if took, err := once(t, s, Row{Name: "work_x", Unit: unit, Count: 4}, nil, 1); err != nil || took != want {
			t.Errorf("%s: %v, %v", unit, took, err)
		}
	}
}

func TestFailedFetchesAreReported(t *testing.T) {
	t.Setenv("PATH", "")
	m := &Materials{Cache: filepath.Join(t.TempDir(), "cache")}
	if err := m.Fetch(t.Context(), Rows, func(string) {}); err != nil {
		t.Fatal(err)
	}
	for _, r := range Rows {
		err := m.Lacks(r)
		if len(r.Needs) == 0 {
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "there is no "+kinds[r.Needs[0]].client) {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// TestFetchedMaterialsAreKept replaces clients that cannot run here with one that counts.
func TestFetchedMaterialsAreKept(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	client := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\necho deb >one.deb\n", calls)
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(client), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := &Materials{Cache: filepath.Join(dir, "cache")}
	rows := []Row{{Name: "work_apt", Needs: []string{debs}}}
	for range 2 {
		if err := m.Fetch(t.Context(), rows, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	asked, _ := os.ReadFile(calls)
	if n := bytes.Count(asked, []byte("\n")); n != 1 || !strings.Contains(string(asked), " ack=") {
		t.Errorf("the client was called %d times: %s", n, asked)
	}
	if err := m.Lacks(rows[0]); err != nil {
		t.Error(err)
	}
	// Other versions are fetched again.
	if err := os.WriteFile(filepath.Join(m.Cache, debs, stamp), []byte("ack=0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.Lacks(rows[0]); err == nil {
		t.Error("packages of other versions do")
	}
}

func TestRowsAreWhole(t *testing.T) {
	var names []string
	for _, r := range Rows {
		names = append(names, r.Name)
		if !strings.Contains(program, `"`+strings.TrimPrefix(r.Name, "work_")+`":`) || r.About == "" || r.Template == "" {
			t.Errorf("%+v", r)
		}
		for _, kind := range r.Needs {
			if len(pinned(kind)) == 0 {
				t.Errorf("%s has no versions", kind)
			}
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(Rows) {
		t.Errorf("a name is there twice: %v", names)
	}
	if wheels := strings.Fields(string(pinned(wheels))); Rows[9].Name != "work_pip" || Rows[9].Count != len(wheels) {
		t.Errorf("there are %d wheels", len(wheels))
	}
}
