package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/coding/folder"
)

// folderKey is the metadata of a sandbox that is kept for a folder of this host.
const folderKey = "bothy.acp"

// start creates a sandbox, or continues with the one that was kept for the same folder
// and agent.
func (e *editing) start(ctx context.Context, req bothy.SandboxCreate) (map[string]folder.State, error) {
	if !e.f.keep {
		return nil, e.fresh(ctx, req)
	}
	key, err := e.key(req)
	if err != nil {
		return nil, err
	}
	page, err := e.s.sandboxes.List(ctx, bothy.SandboxFilter{States: []bothy.State{bothy.StatePaused}, Metadata: map[string]string{folderKey: key}})
	if err != nil {
		return nil, err
	}
	for _, sandbox := range page.Items {
		states, err := readStates(sandbox.ID)
		if err != nil {
			e.warn("%v", err)
		}
		if _, err := e.s.snapshots.Resume(ctx, sandbox.ID, bothy.ResumeOptions{}); err != nil {
			e.warn("the sandbox %s that was kept cannot be taken up: %v", sandbox.ID, err)
			continue
		}
		e.sandbox = sandbox.ID
		_, err = e.s.sandboxes.Update(ctx, e.sandbox, bothy.SandboxUpdate{TimeoutSeconds: req.TimeoutSeconds})
		return states, err
	}
	req.Metadata = cloneWith(req.Metadata, folderKey, key)
	return nil, e.fresh(ctx, req)
}

func (e *editing) fresh(ctx context.Context, req bothy.SandboxCreate) error {
	// The creation is not interrupted: its answer has the id that must be terminated.
	sandbox, err := e.create(context.WithoutCancel(ctx), e.s, req)
	if err == nil {
		e.sandbox = sandbox.ID
	}
	return err
}

// key identifies the folder and what works in it.
func (e *editing) key(req bothy.SandboxCreate) (string, error) {
	dir := e.f.folder
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return "", err
		}
	}
	host, err := os.Hostname()
	return fmt.Sprintf("%s:%s %s", host, dir, cmp.Or(req.Template, req.SnapshotID)), err
}

func cloneWith(m map[string]string, key, value string) map[string]string {
	clone := map[string]string{key: value}
	maps.Copy(clone, m)
	return clone
}

// leave pauses the sandbox, and keeps what is needed to continue with it.
func (e *editing) leave(ctx context.Context) error {
	if err := writeStates(e.sandbox, e.project.Now()); err != nil {
		e.warn("the next time, files that differ are kept twice: %v", err)
	}
	if !e.process.Asleep() {
		if _, err := e.s.snapshots.Pause(ctx, e.sandbox, bothy.PauseOptions{}); err != nil {
			return fmt.Errorf("the sandbox %s was not paused, and runs until its time is up: %w", e.sandbox, err)
		}
	}
	e.warn("sandbox %s is paused until the next time; bothy rm %s ends it", e.sandbox, e.sandbox)
	return nil
}

// statesFile is where this host stores the last state that it has in common with a sandbox.
func statesFile(sandbox string) (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".local/state")
	}
	return filepath.Join(dir, "bothy/acp", sandbox+".json"), nil
}

func readStates(sandbox string) (states map[string]folder.State, err error) {
	file, err := statesFile(sandbox)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &states)
	}
	return states, err
}

func writeStates(sandbox string, states map[string]folder.State) error {
	file, err := statesFile(sandbox)
	if err != nil {
		return err
	}
	b, err := json.Marshal(states)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}
