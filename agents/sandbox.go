package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// ensure makes sure that the session's sandbox is running, with its skills and
// memories, and returns its id. A session whose sandbox has ended gets a new one; the
// error says so once, since the content of the old one is lost.
func (s *session) ensure(ctx context.Context) (string, error) {
	id := s.now().SandboxID
	if s.ready {
		return id, nil
	}
	id, fresh, err := s.find(ctx, id)
	if err != nil {
		return "", err
	}
	if id == "" {
		if id, err = s.create(ctx); err != nil {
			return "", err
		}
		fresh = true
		_ = failpoint.Hit("agents.created")
	}
	if fresh {
		if err := s.change(ctx, func(r *record) { r.moveTo(id) }); err != nil {
			return "", err
		}
	}
	if err := s.placeSkills(ctx, id); err != nil {
		return "", err
	}
	if err := s.placeMemory(ctx, id); err != nil {
		return "", err
	}
	s.ready = true
	return id, nil
}

// find looks for the session's sandbox and resumes it. fresh means that the record did not have
// it.
func (s *session) find(ctx context.Context, id string) (_ string, fresh bool, err error) {
	boxes := s.worker.o.Sandboxes
	if id == "" {
		// It was made by a server that was killed before it could record it.
		page, err := boxes.List(ctx, bothy.SandboxFilter{States: bothy.LiveStates, Limit: 1, Metadata: s.labels()})
		if err != nil || len(page.Items) == 0 {
			return "", false, err
		}
		id, fresh = page.Items[0].ID, true
	}
	box, err := boxes.Get(ctx, id)
	if err == nil && box.State == bothy.StatePaused {
		box, err = s.worker.o.Sleeper.Resume(ctx, id, bothy.ResumeOptions{})
	}
	switch {
	case bothy.ErrorCode(err) == bothy.CodeSandboxNotFound, err == nil && box.State.Ended():
		why := "it was removed"
		if err == nil && box.Ended != nil {
			why = fmt.Sprintf("%s: %s", box.Ended.Reason, box.Ended.Detail)
		}
		if err := s.change(ctx, func(r *record) { r.moveTo("") }); err != nil {
			return "", false, err
		}
		return "", false, &ended{why}
	case err != nil:
		return "", false, err
	}
	if box.Resumed != nil && box.Resumed.Kind == bothy.SnapshotFiles && s.now().Shell != 0 {
		if err := s.checkShell(ctx, id); err != nil {
			return "", false, err
		}
	}
	return id, fresh, nil
}

// ended is the error of a session whose sandbox is gone.
type ended struct{ why string }

func (e *ended) Error() string {
	return fmt.Sprintf("the sandbox of this session has ended (%s), and its files are gone; the next call gets a new one", e.why)
}

func (s *session) labels() map[string]string {
	return map[string]string{LabelAttachment: s.worker.attachment.ID, LabelSession: s.id}
}

// create makes a sandbox as the attachment describes.
func (s *session) create(ctx context.Context) (string, error) {
	box, err := s.worker.o.Sandboxes.Create(ctx, sandboxOf(s.worker.attachment, s.worker.secret, s.labels()))
	if err != nil {
		return "", err
	}
	return box.ID, nil
}

// sandboxOf is the request from which a session's sandbox is created.
func sandboxOf(a *bothy.AgentAttachment, secret sealed, labels map[string]string) bothy.SandboxCreate {
	req := a.Sandbox
	req.Secrets = secret.Secrets
	req.Metadata = maps.Clone(req.Metadata)
	if req.Metadata == nil {
		req.Metadata = map[string]string{}
	}
	maps.Copy(req.Metadata, labels)
	// Its time is limited so that a forgotten one costs nothing, and it resumes when it is used.
	if req.TimeoutSeconds == nil {
		req.TimeoutSeconds = new(sessionTimeout)
	}
	if req.OnTimeout == "" {
		req.OnTimeout = bothy.TimeoutPause
	}
	req.AutoResume = true
	return req
}

// explain describes for the agent why something failed in the sandbox.
func explain(err error) string {
	var e *bothy.Error
	if errors.As(err, &e) && e.Hint != "" {
		return e.Error() + " (" + e.Hint + ")"
	}
	return err.Error()
}

// in resolves a path in the sandbox.
func in(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(bothy.DefaultCwd, name)
	}
	return path.Clean(name)
}

var errFull = errors.New("there is enough output")

// output is a command's output, up to a limit.
type output struct {
	stdout, stderr []byte
	cut            bool
	code           int
}

// run runs a command to its end, or until it has written more than limit bytes.
func (s *session) run(ctx context.Context, id string, limit int, args ...string) (*output, error) {
	out := &output{}
	err := s.worker.o.Commands.ExecStream(ctx, id, bothy.ExecRequest{Command: bothy.Command{Args: args}}, func(e bothy.ExecEvent) error {
		if e.IsFinal {
			out.code = e.ExitCode
			return nil
		}
		data, err := e.Bytes()
		if err != nil {
			return err
		}
		if e.Stream == "stderr" {
			out.stderr = append(out.stderr, data[:min(len(data), max(0, 4096-len(out.stderr)))]...)
			return nil
		}
		out.stdout = append(out.stdout, data...)
		if len(out.stdout) > limit {
			out.stdout, out.cut = out.stdout[:limit], true
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return out, err
}

// process finds a process in the sandbox, or nil.
func (s *session) process(ctx context.Context, id string, is func(bothy.ProcessInfo) bool) (*bothy.ProcessInfo, error) {
	all, err := s.worker.o.Commands.Processes(ctx, id)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i], nil
	}
	return nil, nil
}
