package lifecycle

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// enter returns the machine of the caller's sandbox, and keeps it active until end is called.
// During a pause it waits, and then resumes the sandbox if that has auto_resume: no call enters
// a machine that is being saved. The store is read only if there is no machine.
func (s *Service) enter(ctx context.Context, id string, scope bothy.Scope, what string) (l *instance.Instance, end func(), err error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, nil, err
	}
	if l := s.instance(id); l != nil {
		if l.Project != caller.ProjectID {
			return nil, nil, bothy.NoSandbox(id)
		}
		if end, err := s.machines.Hold(l, what); !errors.Is(err, instance.ErrClosed) {
			return l, end, err
		}
	} else {
		sb, err := s.ledger.Find(ctx, id, scope)
		if err != nil {
			return nil, nil, err
		}
		if !comesBack(sb) {
			return nil, nil, s.wrongState(sb)
		}
	}
	unlock, err := s.ledger.LockFor(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if l, _, err = s.ensureRunning(ctx, id, scope); err != nil {
		return nil, nil, err
	}
	// The lock prevents a pause.
	end, err = s.machines.Hold(l, what)
	return l, end, err
}

// comesBack reports whether waiting for the lock of a sandbox without a machine may lead to
// one.
func comesBack(sb *store.Sandbox) bool {
	switch sb.State {
	case bothy.StatePaused, bothy.StateResuming:
		return sb.AutoResume
	case bothy.StatePausing, bothy.StateRunning:
		return true // the pause may fail, or it was just resumed
	}
	return false
}

// ensureRunning returns the machine of the caller's sandbox, and resumes it first if it is
// paused with auto_resume. The caller holds its lock.
func (s *Service) ensureRunning(ctx context.Context, id string, scope bothy.Scope) (*instance.Instance, *store.Sandbox, error) {
	sb, err := s.ledger.Find(ctx, id, scope)
	if err != nil {
		return nil, nil, err
	}
	if sb.State == bothy.StatePaused && sb.AutoResume {
		if err := s.resumeLocked(ctx, sb, bothy.ResumeOptions{}); err != nil {
			return nil, nil, err
		}
	}
	if l := s.instance(id); l != nil {
		return l, sb, nil
	}
	return nil, nil, s.wrongState(sb)
}

// use calls f once with the guest of a running sandbox.
func (s *Service) use(ctx context.Context, id string, scope bothy.Scope, f func(bothy.Guest) error) error {
	l, end, err := s.enter(ctx, id, scope, instance.ByRequest)
	if err != nil {
		return err
	}
	defer end()
	return s.ask(ctx, l, f)
}

// do is use for what must not be done twice under one idempotency key.
func (s *Service) do(ctx context.Context, id string, f func(bothy.Guest) error) error {
	return s.use(ctx, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) error {
		bothy.Begun(ctx)
		err := f(g)
		if slices.Contains(refusals, bothy.ErrorCode(err)) {
			bothy.NotBegun(ctx)
		}
		return err
	})
}

// refusals are the errors of a guest that has not begun what it was asked for. After any other it may have.
var refusals = []bothy.Code{
	bothy.CodeInvalid, bothy.CodeCommandInvalid, bothy.CodeCommandNotFound, bothy.CodeUnsupported, bothy.CodeUserNotFound,
	bothy.CodePathInvalid, bothy.CodeFileNotFound, bothy.CodeNotADirectory, bothy.CodeIsADirectory, bothy.CodePermission,
	bothy.CodeProcessNotFound, bothy.CodeContextNotFound, bothy.CodeCapacity, bothy.CodeRateLimited,
}

// ask calls f with the guest of a machine that is held. If the guest cannot be reached because
// the machine has ended, the error says so.
func (s *Service) ask(ctx context.Context, l *instance.Instance, f func(bothy.Guest) error) error {
	err := f(l.Guest)
	if err == nil {
		return s.mayAnswer(ctx, l.ID)
	}
	if bothy.ErrorCode(err) == bothy.CodeGuest {
		if e := s.endedError(ctx, l); e != nil {
			return e
		}
		if l.Hung() {
			return instance.DoesNotAnswer(l.ID, err)
		}
	}
	return err
}

// mayAnswer returns an error if what was done in a sandbox is lost, because another host has it by
// now. While that is not known, it waits.
func (s *Service) mayAnswer(ctx context.Context, id string) error {
	err := s.o.Cluster.Await(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	e := bothy.Errorf(bothy.CodeStore, "this host was given up by the others while it worked on the request, so what it did in sandbox %s is lost", id).
		WithHint("Try again in a few seconds: another host may have resumed the sandbox from its last snapshot.").Because(err)
	e.RetryAfter = retryAfter
	return e
}

// answering passes events on as long as mayAnswer allows that.
func answering[E any](ctx context.Context, s *Service, id string, fn func(E) error) func(E) error {
	return func(e E) error {
		if err := s.mayAnswer(ctx, id); err != nil {
			return err
		}
		return fn(e)
	}
}

// read is use for something that is read after f has returned: it keeps the sandbox active
// until it is closed.
func (s *Service) read(ctx context.Context, id string, f func(bothy.Guest) (io.ReadCloser, error)) (io.ReadCloser, error) {
	l, end, err := s.enter(ctx, id, bothy.ScopeSandboxesRead, instance.ByRequest)
	if err != nil {
		return nil, err
	}
	var r io.ReadCloser
	err = s.ask(ctx, l, func(g bothy.Guest) (err error) {
		r, err = f(g)
		return err
	})
	if err != nil {
		end()
		return nil, err
	}
	return &usedReader{r, end}, nil
}

type usedReader struct {
	io.ReadCloser
	end func()
}

func (r *usedReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}

// recordPatience is how long to wait for the record of a machine's end: ending one takes
// seconds on a busy host.
const recordPatience = 20 * time.Second

// endedError waits for the record of a machine's end, and returns it as an error. It returns nil
// if the machine is running.
func (s *Service) endedError(ctx context.Context, l *instance.Instance) error {
	ctx = context.WithoutCancel(ctx)
	waiting, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	ending := l.EndExpected()
	// A network device breaks shortly before its machine is seen to end.
	grace, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if !ending {
		select {
		case <-l.Machine.Done():
		case <-grace.Done():
			return nil
		}
	}
	select {
	case <-l.Gone:
	case <-waiting.Done():
	}
	if err := s.departures.cutOff(l.ID); err != nil {
		return err
	}
	sb, err := s.ledger.Sandbox(ctx, l.ID)
	if err != nil {
		return err
	}
	return s.interrupted(sb)
}

// interrupted says why a request in progress lost the machine of a sandbox.
func (s *Service) interrupted(sb *store.Sandbox) error {
	const look = "look at its processes (GET /v1/sandboxes/%s/processes) before you repeat the request"
	switch {
	case sb.State == bothy.StateRunning || sb.State == bothy.StateResuming:
		return bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s was paused or rolled back while the request was in progress, and runs again", sb.ID).
			WithHint("What the request began may continue: "+look+".", sb.ID)
	case sb.State != bothy.StatePaused && sb.State != bothy.StatePausing:
		return s.wrongState(sb)
	}
	e := bothy.Errorf(bothy.CodeSandboxPaused, "sandbox %s was paused while the request was in progress", sb.ID)
	if sb.AutoResume {
		return e.WithHint("What the request began continues when the next request wakes the sandbox: "+look+".", sb.ID)
	}
	return e.WithHint("What the request began continues when you resume the sandbox (POST /v1/sandboxes/%s/resume): "+look+".", sb.ID, sb.ID)
}

func get[T any](ctx context.Context, s *Service, id string, scope bothy.Scope, f func(bothy.Guest) (T, error)) (T, error) {
	var v T
	err := s.use(ctx, id, scope, func(g bothy.Guest) (err error) {
		v, err = f(g)
		return err
	})
	return v, err
}

// result is do for what returns something.
func result[T any](ctx context.Context, s *Service, id string, f func(bothy.Guest) (T, error)) (T, error) {
	var v T
	err := s.do(ctx, id, func(g bothy.Guest) (err error) {
		v, err = f(g)
		return err
	})
	return v, err
}
