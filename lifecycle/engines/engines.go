// Package engines answers which engine a sandbox runs on: it opens engines when they are
// first needed, and chooses by the server's policy.
package engines

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keylock"
)

// An Opener makes an engine ready, which may take long the first time: something
// must be fetched or tried out. When it fails it has undone what it did.
type Opener func(context.Context) (bothy.Engine, error)

// Choice is one line of the policy for bothy.EngineAuto.
type Choice struct {
	Engine string
	// Accelerated passes over an engine whose machines are emulated.
	Accelerated bool
}

const (
	// openTimeout bounds the opening of an engine.
	openTimeout = 10 * time.Minute
	// openAgain is how long the policy passes over an engine that could not be
	// opened. Who asks for it by name does not wait for that.
	openAgain = 5 * time.Minute
)

// Options say which engines there are.
type Options struct {
	// Open are those that are open, and Openers those that are opened when first needed.
	Open    map[string]bothy.Engine
	Openers map[string]Opener
	// Default is the one that requests get which name none. Auto is the policy for
	// bothy.EngineAuto: the first that can be used.
	Default string
	Auto    []Choice
	Clock   bothy.Clock
	Log     *slog.Logger
	// Background ends with the service.
	Background context.Context
	// Opened is told of every engine that was opened later, and Step of what is done
	// for it.
	Opened func(ctx context.Context, name string, e bothy.Engine)
	Step   func(ctx context.Context, project, engine, step string)
}

// Set holds the engines of a server.
type Set struct {
	o       Options
	opening keylock.Locks

	mu     sync.Mutex
	open   map[string]bothy.Engine
	failed map[string]time.Time
}

// New makes a set.
func New(o Options) *Set {
	s := &Set{o: o, open: maps.Clone(o.Open), failed: map[string]time.Time{}}
	if s.open == nil {
		s.open = map[string]bothy.Engine{}
	}
	return s
}

// Names lists the engines that requests may name.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.open))
	for name := range s.o.Openers {
		if s.open[name] == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Opened lists the engines that are open.
func (s *Set) Opened() map[string]bothy.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.open)
}

// Known reports whether there is an engine of a name, be it open or not.
func (s *Set) Known(name string) bool { return slices.Contains(s.Names(), name) }

// Get returns an engine that is open, or nil.
func (s *Set) Get(name string) bothy.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[name]
}

// Patience is how long to wait for what takes an engine at full speed up to d.
func (s *Set) Patience(engine string, d time.Duration) time.Duration {
	if e := s.Get(engine); e != nil {
		return e.Info().Patience(d)
	}
	return d
}

// Need returns an engine, and opens it if it is not open yet.
func (s *Set) Need(ctx context.Context, name string) (bothy.Engine, error) {
	if e := s.Get(name); e != nil {
		return e, nil
	}
	unlock := s.opening.Lock(name)
	defer unlock()
	if e := s.Get(name); e != nil {
		return e, nil
	}
	s.mu.Lock()
	open := s.o.Openers[name]
	s.mu.Unlock()
	if open == nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "this server has no engine %q", name).
			WithHint("Leave engine out, or use one of: %s.", strings.Join(append(s.Names(), bothy.EngineAuto), ", "))
	}
	// The next caller needs it as well, so it continues when this one goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	stop := context.AfterFunc(s.o.Background, cancel)
	defer stop()
	begun := time.Now()
	e, err := open(s.withSteps(ctx, name))
	if err != nil {
		s.mu.Lock()
		s.failed[name] = s.o.Clock.Now()
		s.mu.Unlock()
		s.o.Log.Warn("engine cannot be used", "engine", name, "error", err)
		return nil, err
	}
	i := e.Info()
	s.o.Log.Info("engine is open", "engine", name, "build", i.Build, "kernel", i.Kernel, "acceleration", i.Acceleration, "ms", time.Since(begun).Milliseconds())
	s.mu.Lock()
	s.open[name] = e
	delete(s.failed, name)
	s.mu.Unlock()
	s.o.Opened(ctx, name, e)
	return e, nil
}

type stepsKey struct{}

// withSteps has Step tell the project that waits for an engine.
func (s *Set) withSteps(ctx context.Context, engine string) context.Context {
	caller := bothy.CallerFrom(ctx)
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, stepsKey{}, func(step string) {
		s.o.Step(ctx, caller.ProjectID, engine, step)
	})
}

// Step tells those who wait for an engine what is being done for it, and takes
// long. An Opener calls it, with the context that it was given.
func Step(ctx context.Context, step string) {
	if tell, ok := ctx.Value(stepsKey{}).(func(string)); ok {
		tell(step)
	}
}

// OpenAll opens what the policy for requests that name no engine may choose, so
// that the first of them need not wait for it. Call it after Recover.
func (s *Set) OpenAll(ctx context.Context) {
	if s.o.Default != bothy.EngineAuto {
		return
	}
	for _, c := range s.o.Auto {
		if _, err := s.Need(ctx, c.Engine); err != nil {
			continue // the log has said it
		}
	}
}

// Choose finds the engine of a new sandbox.
func (s *Set) Choose(ctx context.Context, name string, accelerated bool) (bothy.Engine, error) {
	if name == "" {
		name = s.o.Default
	}
	if name != bothy.EngineAuto {
		e, err := s.Need(ctx, name)
		if err != nil {
			return nil, err
		}
		return e, CheckAcceleration(e.Info(), accelerated)
	}
	var errs []error
	for _, c := range s.o.Auto {
		if s.FailedLately(c.Engine) {
			continue
		}
		e, err := s.Need(ctx, c.Engine)
		if err == nil {
			err = CheckAcceleration(e.Info(), accelerated || c.Accelerated)
		}
		if err == nil {
			return e, nil
		}
		errs = append(errs, err)
	}
	if accelerated {
		return nil, noAcceleration("no engine of this server has KVM").Because(errors.Join(errs...))
	}
	return nil, bothy.Errorf(bothy.CodeEngineMissing, "none of the engines that the server's policy allows can be used").
		WithHint("Name one of: %s. `bothy doctor` says what is missing.", strings.Join(s.Names(), ", ")).Because(errors.Join(errs...))
}

func (s *Set) FailedLately(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, failed := s.failed[name]
	return failed && s.o.Clock.Now().Sub(at) < openAgain
}

// Default is the engine that a request which names none would get now. It
// opens nothing.
func (s *Set) Default() string {
	if s.o.Default != bothy.EngineAuto {
		return s.o.Default
	}
	for _, c := range s.o.Auto {
		if e := s.Get(c.Engine); e != nil && CheckAcceleration(e.Info(), c.Accelerated) == nil {
			return c.Engine
		}
	}
	return ""
}

// CheckAcceleration refuses an engine without acceleration where that is asked
// for.
func CheckAcceleration(i bothy.EngineInfo, wanted bool) error {
	switch {
	case !wanted || i.Acceleration == bothy.AccelerationKVM:
		return nil
	case i.Acceleration == "":
		return bothy.Errorf(bothy.CodeInvalid, "require_acceleration is for virtual machines, and the engine %s makes none", i.Name).
			WithHint("Ask for the engine microvm or auto, or leave require_acceleration out.")
	}
	return noAcceleration("the engine " + i.Name + " has no KVM")
}

func noAcceleration(what string) *bothy.Error {
	return bothy.Errorf(bothy.CodeNoAcceleration, "%s on this host: virtual machines would be emulated", what).
		WithHint("Leave require_acceleration out, use the engine gvisor, or ask the operator, to whom `bothy doctor` says why.")
}
