package lifecycle

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// The register says outside of the store which machines belong to sandboxes: a file
// for each that runs. A server that finds one there of which its store knows nothing
// knows that the store has lost something, and does not take the machine for one that
// nobody wants.

const (
	registerRunning   = "running"
	registerUnclaimed = "unclaimed"
)

// Registered is what the register says of a machine.
type Registered struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"`
	ProjectID   string    `json:"project"`
	Template    string    `json:"template"`
	Engine      string    `json:"engine"`
	EngineState []byte    `json:"engine_state"`
	StartedAt   time.Time `json:"started_at"`
}

// register is a folder; one without a path remembers nothing.
type register struct{ dir string }

func (r register) path(list, id string) string { return filepath.Join(r.dir, list, id+".json") }

func (r register) put(list string, e Registered) error {
	if r.dir == "" {
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

func (r register) remove(list, id string) {
	if r.dir != "" {
		os.Remove(r.path(list, id))
	}
}

// has reports whether there is an entry; one that cannot be looked for is there.
func (r register) has(list, id string) bool {
	_, err := os.Stat(r.path(list, id))
	return !errors.Is(err, fs.ErrNotExist)
}

// Running lists the machines that run for sandboxes of a server of this folder.
func Running(dir string) ([]Registered, error) { return register{dir}.list(registerRunning) }

// Unclaimed lists the machines that a server of this folder keeps aside because its
// database knows nothing of their sandboxes. EndUnclaimed has it end one.
func Unclaimed(dir string) ([]Registered, error) { return register{dir}.list(registerUnclaimed) }

// EndUnclaimed has the server that keeps a machine aside, or else the next one, end
// it.
func EndUnclaimed(dir, id string) error { return os.Remove(register{dir}.path(registerUnclaimed, id)) }

func (r register) list(list string) (all []Registered, err error) {
	if r.dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(filepath.Join(r.dir, list))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		b, err := os.ReadFile(r.path(list, id))
		var e Registered
		if ok && err == nil && json.Unmarshal(b, &e) == nil && e.ID == id {
			all = append(all, e)
		}
	}
	return all, nil
}

// enlist registers a machine that lives. It is called beside what the caller waits
// for: a server that is killed just now loses no more than the second knowledge.
func (s *Service) enlist(l *live, sb bothy.Sandbox) {
	e := Registered{ID: sb.ID, Name: sb.Name, ProjectID: sb.ProjectID, Template: sb.Template, Engine: sb.Engine, EngineState: sb.EngineState}
	if sb.StartedAt != nil {
		e.StartedAt = *sb.StartedAt
	}
	l.enlisting.Lock()
	defer l.enlisting.Unlock()
	if s.liveByID(l.id) != l || s.background.Err() != nil {
		return
	}
	if err := s.register.put(registerRunning, e); err != nil {
		s.log.Warn("cannot register a machine", "sandbox", l.id, "error", err)
	}
	s.register.remove(registerUnclaimed, l.id)
}

// strike takes a machine off the register, unless the sandbox has another one.
func (s *Service) strike(l *live) {
	l.enlisting.Lock()
	defer l.enlisting.Unlock()
	if s.liveByID(l.id) == nil && s.background.Err() == nil {
		s.register.remove(registerRunning, l.id)
	}
}
