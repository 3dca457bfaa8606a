package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// segmentSize is how large a file of a journal grows. Each sandbox has two: the current one
	// and the one before.
	segmentSize = 256 << 10
	// countEvery is how often the byte counters are written while they change.
	countEvery = 10 * time.Second
	before     = ".before"
)

// Journals keep what gateways decided and counted, beyond the life of the gateways and the
// server: a folder with two bounded files of JSON lines for each sandbox. What is written
// survives the end of the server, but not always a loss of power. Its methods may be called from
// many goroutines.
type Journals struct{ dir string }

// OpenJournals makes the folder.
func OpenJournals(dir string) (*Journals, error) {
	return &Journals{dir}, os.MkdirAll(dir, 0o700)
}

// Journal is the memory of one sandbox's gateway.
type Journal struct {
	path string

	mu     sync.Mutex
	file   *os.File // nil until there is something to write, and after a failure
	size   int
	counts bothy.NetworkCounters
}

// Open returns the journal of a sandbox, for the exclusive use of its gateway.
func (j *Journals) Open(id string) *Journal { return &Journal{path: j.path(id)} }

func (j *Journals) path(id string) string { return filepath.Join(j.dir, id+".jsonl") }

// Read returns the stored decisions of a sandbox, oldest first; none if there were none.
func (j *Journals) Read(id string) ([]bothy.NetworkDecision, error) {
	lines, _, err := j.Open(id).load()
	return lines, err
}

// Sweep removes the journals of sandboxes for which keep returns false.
func (j *Journals) Sweep(keep func(id string) bool) error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		id, _, ours := strings.Cut(e.Name(), ".jsonl")
		if ours && !keep(id) {
			errs = append(errs, os.Remove(filepath.Join(j.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// entry is a line: a decision, or the state of the counters.
type entry struct {
	*bothy.NetworkDecision
	Counts *bothy.NetworkCounters `json:"counts,omitempty"`
}

// load returns the newest lines and the last state of the counters. It skips lines that were not
// written completely.
func (j *Journal) load() (lines []bothy.NetworkDecision, counts bothy.NetworkCounters, err error) {
	for _, path := range []string{j.path + before, j.path} {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, counts, err
		}
		for line := range bytes.Lines(b) {
			var e entry
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			if e.Counts != nil {
				counts = *e.Counts
			} else if e.NetworkDecision != nil {
				lines = append(lines, *e.NetworkDecision)
			}
		}
	}
	return lines[max(0, len(lines)-logSize):], counts, nil
}

// record writes a decision.
func (j *Journal) record(d bothy.NetworkDecision) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(entry{NetworkDecision: &d})
}

// count writes the counters if they have changed.
func (j *Journal) count(c bothy.NetworkCounters) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c == j.counts {
		return nil
	}
	j.counts = c
	return j.write(entry{Counts: &c})
}

// write is called with j.mu held.
func (j *Journal) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if j.size >= segmentSize {
		if err := j.turn(); err != nil {
			return err
		}
	}
	if j.file == nil {
		if err := j.open(); err != nil {
			return err
		}
	}
	n, err := j.file.Write(append(b, '\n'))
	j.size += n
	return err
}

// open opens the current file to append, after a complete line.
func (j *Journal) open() error {
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	j.file, j.size = f, int(info.Size())
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
		_, err = f.Write([]byte{'\n'})
		return err
	}
	return nil
}

// turn starts a new file, with the counters as its first line.
func (j *Journal) turn() error {
	if err := j.closeFile(); err != nil {
		return err
	}
	if err := os.Rename(j.path, j.path+before); err != nil {
		return err
	}
	j.size = 0
	return j.write(entry{Counts: &j.counts})
}

func (j *Journal) closeFile() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

func (j *Journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closeFile()
}

// remember loads the lines of an earlier gateway of the same sandbox. It
// returns the number of the first new line.
func (g *Gateway) remember(j *Journal) uint64 {
	lines, counts, err := j.load()
	if err != nil {
		g.log.Warn("gateway: the earlier network log cannot be read", "err", err)
	}
	g.egress.Store(counts.EgressBytes)
	g.ingress.Store(counts.IngressBytes)
	j.counts = counts
	return g.lines.preload(lines)
}

// keep writes the journal until the gateway closes.
func (g *Gateway) keep(j *Journal, from uint64) {
	complain := sync.OnceFunc(func() { g.log.Error("gateway: the network log cannot be written", "dir", filepath.Dir(j.path)) })
	note := func(err error) {
		if err != nil {
			complain()
		}
	}
	var mu sync.Mutex
	var stop func() bool
	ended := false
	var tick func()
	tick = func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			note(j.count(g.Counters()))
			stop = g.clock.AfterFunc(countEvery, tick)
		}
	}
	tick()
	g.lines.followFrom(from, func(d bothy.NetworkDecision) { note(j.record(d)) })
	mu.Lock()
	ended = true
	stop()
	mu.Unlock()
	note(j.count(g.Counters()))
	note(j.close())
}
