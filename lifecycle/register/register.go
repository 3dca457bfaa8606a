// Package register records, independently of the store, which machines belong to sandboxes: a
// file for each running one. If a server finds a machine there that its store does not know,
// the store has lost records, and the machine must not be treated as unowned.
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

// An Entry describes a machine.
type Entry struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	ProjectID   string    `json:"project"`
	Template    string    `json:"template"`
	Engine      string    `json:"engine"`
	EngineState []byte    `json:"engine_state"`
	StartedAt   time.Time `json:"started_at"`
}

// Register is a folder; without a path it records nothing.
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

// Has reports whether there is an entry. If that cannot be determined it returns true.
func (r Register) Has(list, id string) bool {
	_, err := os.Stat(r.path(list, id))
	return !errors.Is(err, fs.ErrNotExist)
}

// Running lists the machines that run for sandboxes of this folder's server.
func Running(dir string) ([]Entry, error) { return Register{dir}.List(RunningList) }

// Unclaimed lists the machines that this folder's server keeps frozen because its database has
// lost their sandboxes. EndUnclaimed requests the end of one.
func Unclaimed(dir string) ([]Entry, error) { return Register{dir}.List(UnclaimedList) }

// EndUnclaimed makes the server that keeps a machine, or the next one, destroy it.
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
