package lifecycle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
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

// engines are the engines of a server.
type engines struct {
	opening keyedLocks

	mu     sync.Mutex
	open   map[string]bothy.Engine
	closed map[string]Opener
	failed map[string]time.Time
	// recovered is set when machines that nobody has adopted are nobody's.
	recovered bool
	// pooled is set once the golden snapshots of the open engines were looked for.
	pooled bool
}

func newEngines(o Options) *engines {
	return &engines{open: maps.Clone(o.Engines), closed: maps.Clone(o.Openers), failed: map[string]time.Time{}}
}

// names lists the engines that requests may name.
func (e *engines) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Collect(maps.Keys(e.open))
	for name := range e.closed {
		if e.open[name] == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// opened lists the engines that are open.
func (e *engines) opened() map[string]bothy.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.open)
}

// known reports whether there is an engine of a name, be it open or not.
func (e *engines) known(name string) bool { return slices.Contains(e.names(), name) }

// engine returns an engine that is open, or nil.
func (s *Service) engine(name string) bothy.Engine {
	s.engines.mu.Lock()
	defer s.engines.mu.Unlock()
	return s.engines.open[name]
}

// patience is how long to wait for what takes an engine at full speed up to d.
func (s *Service) patience(engine string, d time.Duration) time.Duration {
	if e := s.engine(engine); e != nil {
		return e.Info().Patience(d)
	}
	return d
}

// needEngine returns an engine, and opens it if it is not open yet.
func (s *Service) needEngine(ctx context.Context, name string) (bothy.Engine, error) {
	if e := s.engine(name); e != nil {
		return e, nil
	}
	unlock := s.engines.opening.lock(name)
	defer unlock()
	if e := s.engine(name); e != nil {
		return e, nil
	}
	s.engines.mu.Lock()
	open := s.engines.closed[name]
	s.engines.mu.Unlock()
	if open == nil {
		return nil, invalid("this server has no engine %q", name).
			WithHint("Leave engine out, or use one of: %s.", strings.Join(append(s.engines.names(), bothy.EngineAuto), ", "))
	}
	// Whoever asks next needs it as well, so it goes on when this one goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	stop := context.AfterFunc(s.background, cancel)
	defer stop()
	begun := time.Now()
	e, err := open(s.withSteps(ctx, name))
	if err != nil {
		s.engines.mu.Lock()
		s.engines.failed[name] = s.clock.Now()
		s.engines.mu.Unlock()
		s.log.Warn("engine cannot be used", "engine", name, "error", err)
		return nil, err
	}
	i := e.Info()
	s.log.Info("engine is open", "engine", name, "build", i.Build, "kernel", i.Kernel, "acceleration", i.Acceleration, "ms", time.Since(begun).Milliseconds())
	s.engines.mu.Lock()
	s.engines.open[name] = e
	delete(s.engines.failed, name)
	recovered, pooled := s.engines.recovered, s.engines.pooled
	s.engines.mu.Unlock()
	if recovered {
		if err := s.sweepEngine(ctx, name, e); err != nil {
			s.log.Warn("cannot remove what was left of machines", "engine", name, "error", err)
		}
	}
	if pooled && s.background.Err() == nil {
		s.watchers.Go(s.findGoldens)
	}
	return e, nil
}

type stepsKey struct{}

// withSteps has Step tell the project that waits for an engine.
func (s *Service) withSteps(ctx context.Context, engine string) context.Context {
	caller := bothy.CallerFrom(ctx)
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, stepsKey{}, func(step string) {
		s.emitFor(ctx, bothy.EventEnginePreparing, "", caller.ProjectID, map[string]string{"engine": engine, "step": step})
	})
}

// Step tells those who wait for an engine what is being done for it, and takes
// long. An Opener calls it, with the context that it was given.
func Step(ctx context.Context, step string) {
	if tell, ok := ctx.Value(stepsKey{}).(func(string)); ok {
		tell(step)
	}
}

// OpenEngines opens what the policy for requests that name no engine may choose, so
// that the first of them need not wait for it. Call it after Recover.
func (s *Service) OpenEngines(ctx context.Context) {
	if s.o.Engine != bothy.EngineAuto {
		return
	}
	for _, c := range s.o.Auto {
		if _, err := s.needEngine(ctx, c.Engine); err != nil {
			continue // the log has said it
		}
	}
}

// chooseEngine finds the engine of a new sandbox.
func (s *Service) chooseEngine(ctx context.Context, name string, accelerated bool) (bothy.Engine, error) {
	if name == "" {
		name = s.o.Engine
	}
	if name != bothy.EngineAuto {
		e, err := s.needEngine(ctx, name)
		if err != nil {
			return nil, err
		}
		return e, checkAcceleration(e.Info(), accelerated)
	}
	var errs []error
	for _, c := range s.o.Auto {
		if s.failedLately(c.Engine) {
			continue
		}
		e, err := s.needEngine(ctx, c.Engine)
		if err == nil {
			err = checkAcceleration(e.Info(), accelerated || c.Accelerated)
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
		WithHint("Name one of: %s. `bothy doctor` says what is missing.", strings.Join(s.engines.names(), ", ")).Because(errors.Join(errs...))
}

func (s *Service) failedLately(name string) bool {
	s.engines.mu.Lock()
	defer s.engines.mu.Unlock()
	at, failed := s.engines.failed[name]
	return failed && s.clock.Now().Sub(at) < openAgain
}

// defaultEngine is the engine that a request which names none would get now. It
// opens nothing.
func (s *Service) defaultEngine() string {
	if s.o.Engine != bothy.EngineAuto {
		return s.o.Engine
	}
	for _, c := range s.o.Auto {
		if e := s.engine(c.Engine); e != nil && checkAcceleration(e.Info(), c.Accelerated) == nil {
			return c.Engine
		}
	}
	return ""
}

// checkAcceleration refuses an engine without acceleration where that is asked
// for.
func checkAcceleration(i bothy.EngineInfo, wanted bool) error {
	switch {
	case !wanted || i.Acceleration == bothy.AccelerationKVM:
		return nil
	case i.Acceleration == "":
		return invalid("require_acceleration is for virtual machines, and the engine %s makes none", i.Name).
			WithHint("Ask for the engine microvm or auto, or leave require_acceleration out.")
	}
	return noAcceleration("the engine " + i.Name + " has no KVM")
}

func noAcceleration(what string) *bothy.Error {
	return bothy.Errorf(bothy.CodeNoAcceleration, "%s on this host: virtual machines would be emulated", what).
		WithHint("Leave require_acceleration out, use the engine gvisor, or ask the operator, to whom `bothy doctor` says why.")
}
