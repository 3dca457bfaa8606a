// Package work measures what programs do once a sandbox runs: system calls, files, processes,
// and what agents run all day. Every row is the same program on the same files in a sandbox, in
// a container, and on the host. The time is measured inside, and the program checks that the
// work was really done.
//
// Folder lab has the containers, and suite compares. Only programs that measure use it.
package work

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/bothy-dev/bothy/bench"
)

//go:embed work.py
var program string

// A Row is one kind of work.
type Row struct {
	// Name is the name of the result: work_read and so on.
	Name string
	// Unit is ms for the whole work, or µs for one of its steps.
	Unit string
	// Template is one that has the programs that it needs.
	Template string
	// Count is the amount of work, 0 if there is only one amount.
	Count int
	// Needs names the materials.
	Needs []string
	About string
}

const (
	python = "python-3.12"
	debian = "debian-12"
)

// Rows are all rows, first what a kernel does, then what agents run.
var Rows = []Row{
	{Name: "work_getppid", Unit: "µs", Template: python, Count: 100_000, About: "one system call"},
	{Name: "work_threads", Unit: "ms", Template: python, Count: 60_000, About: "8 threads take items from a queue"},
	{Name: "work_read", Unit: "ms", Template: python, Count: 10_000, About: "files of 4 KiB are read"},
	{Name: "work_write", Unit: "ms", Template: python, Count: 10_000, About: "files of 4 KiB are written"},
	{Name: "work_sqlite", Unit: "ms", Template: python, Count: 2000, About: "transactions of SQLite"},
	{Name: "work_stat", Unit: "ms", Template: python, About: "find and stat over site-packages"},
	{Name: "work_tar", Unit: "ms", Template: python, Count: 3, About: "large packages into an archive and out of it"},
	{Name: "work_pipe", Unit: "ms", Template: python, Count: 1_000_000_000, About: "bytes through two pipes"},
	{Name: "work_spawn", Unit: "ms", Template: python, Count: 200, About: "programs that a shell starts"},
	{Name: "work_pip", Unit: "ms", Template: python, Count: 36, Needs: []string{wheels}, About: "pip install from a folder of wheels"},
	{Name: "work_npm", Unit: "ms", Template: python, Needs: []string{npm}, About: "npm ci from a cache"},
	{Name: "work_go", Unit: "ms", Template: debian, Count: 40, Needs: []string{golang}, About: "go build of so many packages"},
	{Name: "work_make", Unit: "ms", Template: debian, Count: 60, About: "make -j2 of so many C files"},
	{Name: "work_pytest", Unit: "ms", Template: python, Count: 20, Needs: []string{wheels}, About: "so many files of networkx's own tests"},
	{Name: "work_git", Unit: "ms", Template: python, Count: 20_000, About: "git status, five times, in a tree of so many files"},
	{Name: "work_apt", Unit: "ms", Template: debian, Needs: []string{debs}, About: "apt-get install of ten packages"},
}

// scaled is the amount of work at a scale, of which 1 is the usual.
func (r Row) scaled(scale float64) int {
	if r.Count == 0 {
		return 0
	}
	return max(1, int(float64(r.Count)*scale))
}

// A Place is where work is done.
type Place interface {
	// Run runs a command as root to its end, and returns its output.
	Run(ctx context.Context, args ...string) (string, error)
	// Unpack unpacks a tar archive into an existing folder.
	Unpack(ctx context.Context, folder string, archive io.Reader) error
}

// Folder is where everything is in a place. It is on the root file system.
const Folder = "/srv/bench"

// A Site is a place with what has been copied there.
type Site struct {
	Place
	// Name is that of the subject.
	Name string
	// Folder is where everything is, if not in Folder.
	Folder string
	there  map[string]bool
}

// NewSite returns a place where nothing has been copied yet.
func NewSite(name string, p Place) *Site {
	return &Site{Place: p, Name: name, Folder: Folder, there: map[string]bool{}}
}

// outcome is what the program reports about itself.
type outcome struct {
	Seconds     float64
	Did, Wanted int
}

// Subject does the work of a row once each time. What the row needs is copied there the first
// time.
func (s *Site) Subject(r Row, m *Materials, scale float64) bench.Subject {
	return bench.Subject{Name: s.Name, Once: func(ctx context.Context, record bench.Record) error {
		if err := s.bring(ctx, r, m); err != nil {
			return fmt.Errorf("bring what %s needs: %w", r.Name, err)
		}
		o, err := s.do(ctx, strings.TrimPrefix(r.Name, "work_"), r.scaled(scale))
		if err != nil {
			return err
		}
		if o.Did == 0 || o.Did != o.Wanted {
			return fmt.Errorf("%s did %d of %d", r.Name, o.Did, o.Wanted)
		}
		record(r.Name, r.value(o))
		return nil
	}}
}

func (r Row) value(o *outcome) float64 {
	if r.Unit == "µs" {
		return o.Seconds * 1e6 / float64(o.Did)
	}
	return o.Seconds * 1000
}

func (s *Site) do(ctx context.Context, name string, count int) (*outcome, error) {
	out, err := s.Run(ctx, "python3", path.Join(s.Folder, "work.py"), name, fmt.Sprint(count))
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	o := &outcome{}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), o); err != nil {
		return nil, fmt.Errorf("the work %s printed %q: %w", name, out, err)
	}
	return o, nil
}

// bring copies the program and the materials of a row there.
func (s *Site) bring(ctx context.Context, r Row, m *Materials) error {
	if !s.there[""] {
		if err := s.unpack(ctx, s.Folder, single("work.py", program)); err != nil {
			return err
		}
		s.there[""] = true
	}
	for _, kind := range r.Needs {
		if s.there[kind] {
			continue
		}
		archive, err := m.archive(kind)
		if err != nil {
			return err
		}
		err = s.unpack(ctx, path.Join(s.Folder, kind), archive)
		archive.Close()
		if err != nil {
			return err
		}
		s.there[kind] = true
	}
	return nil
}

func (s *Site) unpack(ctx context.Context, folder string, archive io.Reader) error {
	if _, err := s.Run(ctx, "mkdir", "-p", folder); err != nil {
		return err
	}
	return s.Unpack(ctx, folder, archive)
}
