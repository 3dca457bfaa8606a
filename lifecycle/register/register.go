// Package register answers, without the store, which machines belong to sandboxes: it
// keeps a file for each that runs. A server that finds one there of which its store knows
// nothing knows that the store has lost something, and does not take the machine for one
// without an owner.
package register

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The lists of a register.
const (
	RunningList   = "running"
	UnclaimedList = "unclaimed"
)

// An Entry is what the register says of a machine.
type Entry struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	ProjectID   string    `json:"project"`
	Template    string    `json:"template"`
	Engine      string    `json:"engine"`
	EngineState []byte    `json:"engine_state"`
	StartedAt   time.Time `json:"started_at"`
}

// Register is a folder; one without a path remembers nothing.
type Register struct{ Dir string }

func (r Register) path(list, id string) string { return filepath.Join(r.Dir, list, id+".json") }

// Put adds or replaces an entry of a list.
func (r Register) Put(list string, e Entry) error {
	if r.Dir == "" {
		return nil
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := r.path(list, e.ID)
	draft := path + ".new"
	err = os.WriteFile(draft, b, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(draft, b, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		os.Remove(draft)
	}
	return err
}

// Remove removes an entry.
func (r Register) Remove(list, id string) {
	if r.Dir != "" {
		os.Remove(r.path(list, id))
	}
}

// Has reports whether there is an entry; one that cannot be looked for is there.
func (r Register) Has(list, id string) bool {
	_, err := os.Stat(r.path(list, id))
	return !errors.Is(err, fs.ErrNotExist)
}

// Running lists the machines that run for sandboxes of a server of this folder.
func Running(dir string) ([]Entry, error) { return Register{dir}.List(RunningList) }

// Unclaimed lists the machines that a server of this folder keeps aside because its
// database knows nothing of their sandboxes. EndUnclaimed has it end one.
func Unclaimed(dir string) ([]Entry, error) { return Register{dir}.List(UnclaimedList) }

// EndUnclaimed has the server that keeps a machine aside, or else the next one, end
// it.
func EndUnclaimed(dir, id string) error { return os.Remove(Register{dir}.path(UnclaimedList, id)) }

// List returns the entries of a list.
func (r Register) List(list string) (all []Entry, err error) {
	if r.Dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(filepath.Join(r.Dir, list))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		b, err := os.ReadFile(r.path(list, id))
		var e Entry
		if ok && err == nil && json.Unmarshal(b, &e) == nil && e.ID == id {
			all = append(all, e)
		}
	}
	return all, nil
}
