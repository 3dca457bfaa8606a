package agents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

const (
	// stopTime limits what is still done after work has ended.
	stopTime = 10 * time.Second
	// defaultIdle is how long a session may be idle before its sandbox is paused.
	defaultIdle = time.Minute
	// callTime limits a call. Each tool has its own, lower limits.
	callTime = 2 * maxBashTime
)

// Why the work of a session ends.
var (
	errLeaseLost = errors.New("the lease was lost to another worker")
	errStopped   = errors.New("the service stopped the work")
	errRefused   = errors.New("the service refuses the key")
	errFinished  = errors.New("the work is done")
)

// A piece is claimed work for a session.
type piece struct {
	id, secret, heartbeat string
}

// credential authorizes requests for a piece of work: the token in its secret, or else the
// environment key.
func (p piece) credential(key string) string {
	if t := p.token(); t != "" {
		return t
	}
	return key
}

func (p piece) token() string {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(p.secret, "="))
	if err != nil {
		return ""
	}
	var secret struct {
		Token string `json:"sessions_token"`
	}
	_ = json.Unmarshal(raw, &secret)
	return secret.Token
}

// A session is one session of an attachment, with its sandbox.
type session struct {
	worker *worker
	id     string
	busy   sync.Mutex // held while a piece of work is in progress

	mu     sync.Mutex
	record record

	// These are guarded by busy.
	ready    bool // the sandbox runs and is prepared
	about    *description
	requests []option.RequestOption
	memory   *memory
	failures int // in a row
}

// work processes a piece of work, from its claim to its end.
func (s *session) work(ctx context.Context, p piece) {
	s.busy.Lock()
	defer s.busy.Unlock()
	log := s.worker.log.With("session", s.id, "work", p.id)
	_ = failpoint.Hit("agents.claimed")
	err := s.change(ctx, func(r *record) { r.WorkID, r.Secret, r.Heartbeat, r.Error = p.id, p.secret, p.heartbeat, "" })
	if err != nil {
		log.Error("work cannot be stored, and waits for its lease to end", "error", err)
		return
	}
	_ = failpoint.Hit("agents.stored")
	held, end := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { end(s.beat(held, p)) })
	over, err := s.serve(held, p)
	s.recover(held, err != nil)
	end(errFinished)
	beats.Wait()
	s.ready, s.about, s.requests = false, nil, nil

	why := context.Cause(held)
	switch {
	case errors.Is(why, errClosing), errors.Is(why, errReplaced):
		return // the next worker continues it
	case !errors.Is(why, errFinished):
		err = why
	}
	if err != nil {
		log.Warn("the work has ended early", "error", err)
	}
	// Stopped first: while the lease is held no other worker uses the sandbox.
	s.rest(ctx, over, why)
	_ = failpoint.Hit("agents.rested")
	if !errors.Is(why, errLeaseLost) {
		s.worker.giveBack(ctx, p)
	}
	_ = failpoint.Hit("agents.returned")
	if over {
		s.worker.forget(ctx, s)
		return
	}
	err = s.change(ctx, func(r *record) {
		r.WorkID, r.Secret, r.Heartbeat = "", "", ""
		switch {
		case err != nil:
			r.Error = plainly(err)
		case errors.Is(why, errFinished): // at the end of a turn no call is open
			r.Calls = nil
		}
	})
	if err != nil {
		log.Error("the end of work cannot be stored", "error", err)
	}
}

// recover waits for a while after failed work, longer with each failure in a row. The lease is
// kept meanwhile, so that the queue does not hand the work out again immediately.
func (s *session) recover(ctx context.Context, failed bool) {
	if !failed {
		s.failures = 0
		return
	}
	s.failures = min(s.failures+1, 5)
	wait := time.NewTimer(time.Second << (s.failures - 1))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// serve runs the tools that the session calls, until it ends, is idle for long, or ctx ends.
// over means that the session has ended.
func (s *session) serve(ctx context.Context, p piece) (over bool, err error) {
	w, held := s.worker, ctx
	s.requests = append(credential(p.credential(w.secret.Key)), option.WithMiddleware(whileHeld(ctx)))
	s.memory = nil
	s.about, err = s.describe(ctx)
	if isStatus(err, http.StatusNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer s.closeMemory(ctx)
	if err := s.openMemory(p); err != nil {
		return false, err
	}
	idle := defaultIdle
	if n := w.attachment.Sandbox.IdleSeconds; n > 0 {
		idle = time.Duration(n) * time.Second
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	kept := &account{use: w.use, project: w.attachment.ProjectID, fail: end}
	defer kept.close()
	ctx = context.WithValue(ctx, accountKey{}, kept)
	runner := w.client.Beta.Sessions.Events.NewToolRunner(ctx, s.id, anthropic.SessionToolRunnerOptions{
		Tools: s.tools(), MaxIdle: &idle, Logger: w.log, ToolTimeout: callTime, RequestOptions: s.requests,
	})
	defer runner.Close()
	for runner.Next() {
		c := runner.Current()
		if c.Posted {
			if err := s.change(ctx, func(r *record) { delete(r.Calls, c.ToolUseID) }); err != nil {
				return false, err
			}
		}
		s.syncMemory(ctx)
	}
	switch err := runner.Err(); {
	case errors.Is(err, anthropic.ErrSessionTerminated):
		return true, nil
	case errors.Is(err, anthropic.ErrIdleTimeout), held.Err() != nil:
		return false, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	default:
		return false, err
	}
}

// describe asks the service about the session. The SDK does not read the answer, so that nothing
// understands it in another way than the worker.
func (s *session) describe(ctx context.Context) (*description, error) {
	var raw *http.Response
	_, err := s.worker.client.Beta.Sessions.Get(ctx, s.id, anthropic.BetaSessionGetParams{}, slices.Concat(s.requests, []option.RequestOption{option.WithResponseBodyInto(&raw)})...)
	if raw != nil {
		defer raw.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	b, err := bounded.ReadAll(ctx, raw.Body, maxSession)
	if err != nil {
		return nil, fmt.Errorf("the service's description of the session: %w", err)
	}
	return describe(b)
}

// whileHeld lets requests pass only while the lease is held: the SDK's runner sends the result
// of an aborted call even after its context has ended. It answers like the service after a lost
// lease, since the SDK retries after an error.
func whileHeld(held context.Context) option.Middleware {
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if held.Err() != nil {
			return &http.Response{
				StatusCode: http.StatusPreconditionFailed, Status: "412 Precondition Failed", Header: http.Header{}, Body: http.NoBody, Request: r,
			}, nil
		}
		return next(r)
	}
}

// rest puts the sandbox into the state in which it waits for more work.
func (s *session) rest(ctx context.Context, over bool, why error) {
	r := s.now()
	if r.SandboxID == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	var err error
	if over {
		err = s.worker.o.Sandboxes.Terminate(ctx, r.SandboxID)
	} else {
		_, err = s.worker.o.Sleeper.Pause(ctx, r.SandboxID, bothy.PauseOptions{})
	}
	switch bothy.ErrorCode(err) {
	case "", bothy.CodeSandboxPaused, bothy.CodeSandboxEnded, bothy.CodeSandboxNotFound:
	default:
		s.worker.log.Warn("the sandbox of a session was not paused", "session", s.id, "sandbox", r.SandboxID, "error", err)
	}
}

const (
	firstBeat = 30 * time.Second
	leastBeat = time.Second
)

// beat keeps the lease of a piece of work, until ctx ends or the lease does, and returns why.
func (s *session) beat(ctx context.Context, p piece) error {
	w := s.worker
	every, lease, last, held := firstBeat, firstBeat, p.heartbeat, time.Now()
	for {
		res, err := w.client.Beta.Environments.Work.Heartbeat(ctx, p.id, anthropic.BetaEnvironmentWorkHeartbeatParams{
			EnvironmentID: w.attachment.Environment, ExpectedLastHeartbeat: param.NewOpt(last),
		}, append(credential(p.credential(w.secret.Key)), option.WithRequestTimeout(every), option.WithMaxRetries(0))...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isStatus(err, http.StatusPreconditionFailed):
			return errLeaseLost
		case refused(err):
			return errRefused
		case err != nil && time.Since(held) > lease:
			return errLeaseLost
		case err != nil:
			w.log.Warn("a heartbeat failed", "session", s.id, "work", p.id, "error", err)
		case len(res.LastHeartbeat) > maxHeartbeat:
			return errors.New("the service's heartbeat is too long")
		case !res.LeaseExtended, res.State == anthropic.BetaSelfHostedWorkHeartbeatResponseStateStopping,
			res.State == anthropic.BetaSelfHostedWorkHeartbeatResponseStateStopped:
			return errStopped
		default:
			last, held = res.LastHeartbeat, time.Now()
			if res.TTLSeconds > 0 {
				lease = max(time.Duration(res.TTLSeconds)*time.Second, leastBeat)
				every = min(max(lease/2, leastBeat), firstBeat)
			}
			if err := s.change(ctx, func(r *record) { r.Heartbeat = last }); err != nil {
				w.log.Error("a heartbeat cannot be stored", "session", s.id, "error", err)
			}
		}
		wait := time.NewTimer(every)
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-wait.C:
		}
	}
}
