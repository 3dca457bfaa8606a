// Package engines opens engines when they are first needed, and chooses the engine of a sandbox
// by the server's policy.
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

// An Opener opens an engine. The first time may take long, if something must be fetched or
// tested. On failure it has undone what it did.
type Opener func(context.Context) (bothy.Engine, error)

// Choice is one entry of the policy for bothy.EngineAuto.
type Choice struct {
	Engine string
	// Accelerated skips the engine if its machines are emulated.
	Accelerated bool
}

const (
	// openTimeout limits the opening of an engine.
	openTimeout = 10 * time.Minute
	// openAgain is how long the auto policy skips an engine that failed to open. Requests that
	// name the engine try at once.
	openAgain = 5 * time.Minute
)

// Options configure a Set.
type Options struct {
	// Open are the engines that are open, and Openers open others when first needed.
	Open    map[string]bothy.Engine
	Openers map[string]Opener
	// Default is the engine for requests that name none. Auto is the policy for
	// bothy.EngineAuto: the first usable one is chosen.
	Default string
	Auto    []Choice
	Clock   bothy.Clock
	Log     *slog.Logger
	// Background ends with the service.
	Background context.Context
	// Opened is called for every engine that is opened later, and Step with the progress of
	// opening it.
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

// New returns a set.
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

// Known reports whether an engine exists, open or not.
func (s *Set) Known(name string) bool { return slices.Contains(s.Names(), name) }

// Get returns an open engine, or nil.
func (s *Set) Get(name string) bothy.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[name]
}

// Patience returns how long to wait for an operation that takes d at full speed.
func (s *Set) Patience(engine string, d time.Duration) time.Duration {
	if e := s.Get(engine); e != nil {
		return e.Info().Patience(d)
	}
	return d
}

// Need returns an engine, opening it if needed.
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
			WithHint("Omit engine, or use one of: %s.", strings.Join(append(s.Names(), bothy.EngineAuto), ", "))
	}
	// Other callers need it too, so opening continues if this one leaves.
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
		s.o.Log.Warn("cannot open an engine", "engine", name, "error", err)
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

// withSteps lets Step report to the project that waits for an engine.
func (s *Set) withSteps(ctx context.Context, engine string) context.Context {
	caller := bothy.CallerFrom(ctx)
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, stepsKey{}, func(step string) {
		s.o.Step(ctx, caller.ProjectID, engine, step)
	})
}

// Step reports progress to those who wait for an engine. An Opener calls it with its own
// context.
func Step(ctx context.Context, step string) {
	if tell, ok := ctx.Value(stepsKey{}).(func(string)); ok {
		tell(step)
	}
}

// OpenAll opens the engines of the auto policy, so that the first request need not wait. Call
// it after Recover.
func (s *Set) OpenAll(ctx context.Context) {
	if s.o.Default != bothy.EngineAuto {
		return
	}
	for _, c := range s.o.Auto {
		if _, err := s.Need(ctx, c.Engine); err != nil {
			continue // already logged
		}
	}
}

// Choose returns the engine for a new sandbox.
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
	return nil, bothy.Errorf(bothy.CodeEngineMissing, "none of the engines in the server's auto policy can be used").
		WithHint("Name one of: %s. Run `bothy doctor` to see what is missing.", strings.Join(s.Names(), ", ")).Because(errors.Join(errs...))
}

func (s *Set) FailedLately(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, failed := s.failed[name]
	return failed && s.o.Clock.Now().Sub(at) < openAgain
}

// Default is the engine that a request without one would get now. It opens nothing.
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

// CheckAcceleration returns an error if acceleration is wanted and the engine has none.
func CheckAcceleration(i bothy.EngineInfo, wanted bool) error {
	switch {
	case !wanted || i.Acceleration == bothy.AccelerationKVM:
		return nil
	case i.Acceleration == "":
		return bothy.Errorf(bothy.CodeInvalid, "require_acceleration is only for virtual machines, which the engine %s does not use", i.Name).
			WithHint("Use the engine microvm or auto, or omit require_acceleration.")
	}
	return noAcceleration("the engine " + i.Name + " has no KVM")
}

func noAcceleration(what string) *bothy.Error {
	return bothy.Errorf(bothy.CodeNoAcceleration, "%s on this host: virtual machines would be emulated", what).
		WithHint("Omit require_acceleration, use the engine gvisor, or ask the operator to run `bothy doctor`, which says why.")
}
