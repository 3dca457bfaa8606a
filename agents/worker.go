package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// refusedPause is how long to wait after the queue has refused the key.
	refusedPause = 5 * time.Minute
	// reclaimAfter is how long after being handed out unacknowledged work is reclaimed; a server
	// that is killed in between leaves such work.
	reclaimAfter = time.Minute
	// maxKept limits the sessions of an attachment that are known.
	maxKept = 1000
	// maxSecret and maxHeartbeat limit what the queue hands out with work, and maxReason what
	// is kept of a failure.
	maxSecret    = 16 << 10
	maxHeartbeat = 200
	maxReason    = 500
)

// Why work ends before its session does.
var (
	errClosing   = errors.New("the server stops")
	errReplaced  = errors.New("the attachment was changed")
	errDetached  = errors.New("the environment was detached")
	errOwnerless = errors.New("the API key that attached the environment was revoked or has expired: attach it again with another")
)

// A worker works for one attachment.
type worker struct {
	o          Options
	use        *usage
	attachment *bothy.AgentAttachment
	secret     sealed
	client     anthropic.Client
	log        *slog.Logger
	slots      chan struct{}

	cancel context.CancelCauseFunc
	ended  sync.WaitGroup

	mu        sync.Mutex
	sessions  map[string]*session
	failure   string
	ownerless bool // the key that made the attachment has ended

	release func() // of the key, or nil
}

func newWorker(ctx context.Context, o Options, use *usage, a *store.AgentAttachment) (*worker, error) {
	w := &worker{
		o: o, use: use, attachment: &a.AgentAttachment, sessions: map[string]*session{}, slots: make(chan struct{}, a.MaxSessions),
		log: o.Log.With("attachment", a.ID, "environment", a.Environment),
	}
	plain, err := o.Vault.Open(a.Sealed, boundTo(a.ID))
	if err != nil {
		return nil, fmt.Errorf("the environment key cannot be read: %w", err)
	}
	if err := json.Unmarshal(plain, &w.secret); err != nil {
		return nil, err
	}
	records, err := o.Store.AgentSessions(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	for id, b := range records {
		r, err := openRecord(o.Vault, a.ID, id, b)
		if err != nil {
			return nil, err
		}
		w.sessions[id] = &session{worker: w, id: id, record: *r}
	}
	// Not NewClient, which reads addresses and keys from the server's environment.
	opts := []option.RequestOption{
		option.WithBaseURL(a.URL), option.WithTracerProvider(callIDs{}), option.WithOpenTelemetryPropagation(false),
		option.WithHTTPClient(&http.Client{
			Transport:     &wire{next: cmp.Or(o.Transport, http.DefaultTransport), large: use.largeOf(a.ProjectID)},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	}
	w.client = anthropic.Client{Options: opts, Beta: anthropic.NewBetaService(opts...)}
	return w, nil
}

// start starts working, first on previously claimed work.
func (w *worker) start(ctx context.Context) {
	ctx = bothy.WithCaller(ctx, &bothy.Caller{
		ProjectID: w.attachment.ProjectID, TokenID: "server", TokenName: w.attachment.ID,
		Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite},
	})
	ctx, w.cancel = context.WithCancelCause(ctx)
	w.mu.Lock()
	var claimed []*session
	for _, s := range w.sessions {
		if s.record.WorkID != "" {
			claimed = append(claimed, s)
		}
	}
	w.mu.Unlock()
	for _, s := range claimed {
		r := s.now()
		w.ended.Go(func() {
			if !w.enter(ctx) {
				return
			}
			defer w.leave()
			s.work(ctx, piece{id: r.WorkID, secret: r.Secret, heartbeat: r.Heartbeat})
		})
	}
	w.ended.Go(func() { w.poll(ctx) })
}

// hold ends the work when the key that made the attachment is revoked or expires: nobody who has
// lost a key keeps sandboxes working. The attachment stays, and says why.
func (w *worker) hold(ctx context.Context, a *store.AgentAttachment) error {
	if a.TokenID == "" || w.o.Keys == nil {
		return nil
	}
	end := func(error) {
		w.mu.Lock()
		w.ownerless = true
		w.mu.Unlock()
		w.cancel(errOwnerless)
	}
	_, release, err := w.o.Keys.HoldID(ctx, a.ProjectID, a.TokenID, end)
	switch bothy.ErrorCode(err) {
	case "":
		w.release = release
	case bothy.CodeUnauthenticated, bothy.CodeTokenExpired:
		end(err)
	default:
		return err
	}
	return nil
}

// stop ends the work, and waits for it.
func (w *worker) stop(why error) {
	w.cancel(why)
	w.ended.Wait()
	if w.release != nil {
		w.release()
	}
}

// enter waits until one more session may be processed.
func (w *worker) enter(ctx context.Context) bool {
	select {
	case w.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *worker) leave() { <-w.slots }

// poll claims work until ctx ends. A queue that refuses is retried after a while: a key that was
// revoked by mistake can be restored.
func (w *worker) poll(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.claim(ctx)
		if ctx.Err() != nil {
			return
		}
		w.log.Error("the queue of managed agents refuses", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(refusedPause):
		}
	}
}

// claim claims work until the queue refuses, or ctx ends.
func (w *worker) claim(ctx context.Context) error {
	poller := environments.NewWorkPoller(ctx, w.client, environments.WorkPollerOptions{
		EnvironmentID: w.attachment.Environment, EnvironmentKey: w.secret.Key, WorkerID: "bothy-" + w.attachment.ID,
		AutoStop: param.NewOpt(false), ReclaimOlderThanMs: param.NewOpt(reclaimAfter.Milliseconds()),
		RequestOptions: []option.RequestOption{option.WithMiddleware(w.noteAnswer)}, Logger: w.log,
	})
	defer poller.Close()
	for w.enter(ctx) {
		if !poller.Next() {
			w.leave()
			return poller.Err()
		}
		work := poller.Current()
		if !idForm.MatchString(work.ID) || len(work.Secret) > maxSecret || work.Data.Type == "session" && !idForm.MatchString(work.Data.ID) {
			w.leave()
			return w.fail("the queue hands out work that is not understood: %.100q for %.100q", work.ID, work.Data.ID)
		}
		p := piece{id: work.ID, secret: work.Secret, heartbeat: noHeartbeat}
		if work.Data.Type != "session" {
			w.log.Debug("work is not for a session", "work", work.ID, "type", work.Data.Type)
			w.giveBack(ctx, p)
			w.leave()
			continue
		}
		s := w.session(ctx, work.Data.ID)
		if s == nil {
			w.giveBack(ctx, p)
			w.leave()
			return w.fail("the service has more than %d sessions with sandboxes here: end some of them", maxKept)
		}
		w.ended.Go(func() {
			defer w.leave()
			s.work(ctx, p)
		})
	}
	return ctx.Err()
}

// fail notes why the queue is not polled for a while.
func (w *worker) fail(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err.Error()
	return err
}

// session returns the one with an id, which may be new. It is nil if there are too many. One that
// has neither work nor a sandbox gives way to a new one.
func (w *worker) session(ctx context.Context, id string) *session {
	w.mu.Lock()
	s, full, idle := w.sessions[id], len(w.sessions) >= maxKept, (*session)(nil)
	for _, other := range w.sessions {
		if s == nil && full && other.idle() {
			idle = other
			break
		}
	}
	w.mu.Unlock()
	switch {
	case s != nil:
		return s
	case idle != nil:
		w.forget(ctx, idle)
	case full:
		return nil
	}
	s = &session{worker: w, id: id}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[id] = s
	return s
}

// idle reports whether nothing would be missed with the session.
func (s *session) idle() bool {
	if !s.busy.TryLock() {
		return false
	}
	defer s.busy.Unlock()
	r := s.now()
	return r.WorkID == "" && r.SandboxID == ""
}

// forget removes a session that has ended.
func (w *worker) forget(ctx context.Context, s *session) {
	w.mu.Lock()
	delete(w.sessions, s.id)
	w.mu.Unlock()
	if err := w.o.Store.DeleteAgentSession(context.WithoutCancel(ctx), w.attachment.ID, s.id); err != nil {
		w.log.Warn("a session that has ended stays in the store", "session", s.id, "error", err)
	}
}

// noteAnswer records whether the queue answers.
func (w *worker) noteAnswer(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(r)
	failure := ""
	switch {
	case r.Context().Err() != nil:
		return res, err
	case err != nil:
		failure = "the queue cannot be reached: " + err.Error()
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden:
		failure = fmt.Sprintf("the queue refuses the environment key (%s): attach the environment again with one that is valid", res.Status)
	case res.StatusCode == http.StatusNotFound:
		failure = fmt.Sprintf("there is no environment %s at %s", w.attachment.Environment, w.attachment.URL)
	case res.StatusCode >= 400:
		failure = "the queue answers " + res.Status
	}
	w.mu.Lock()
	w.failure = failure
	w.mu.Unlock()
	return res, err
}

// show completes an attachment with its state.
func (w *worker) show(a *bothy.AgentAttachment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.sessions {
		r := s.now()
		a.Sessions = append(a.Sessions, r.shown(id))
		if r.WorkID != "" {
			a.State = bothy.AgentsWorking
		}
	}
	sortSessions(a.Sessions)
	if w.ownerless {
		a.State, a.LastError = bothy.AgentsFailing, errOwnerless.Error()
	} else if w.failure != "" {
		a.State, a.LastError = bothy.AgentsFailing, w.failure
	}
}

// credential makes requests carry a key, and no other.
func credential(key string) []option.RequestOption {
	return []option.RequestOption{option.WithHeaderDel("X-Api-Key"), option.WithAuthToken(key)}
}

// giveBack stops a piece of work at the queue.
func (w *worker) giveBack(ctx context.Context, p piece) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	var raw *http.Response // the answer may have no body, which the SDK does not expect
	_, err := w.client.Beta.Environments.Work.Stop(ctx, p.id, anthropic.BetaEnvironmentWorkStopParams{
		EnvironmentID:                 w.attachment.Environment,
		BetaSelfHostedWorkStopRequest: anthropic.BetaSelfHostedWorkStopRequestParam{Force: param.NewOpt(true)},
	}, append(credential(p.credential(w.secret.Key)), option.WithResponseBodyInto(&raw))...)
	if raw != nil {
		raw.Body.Close()
	}
	if err != nil && !isStatus(err, http.StatusConflict) {
		w.log.Warn("work was not given back, and stays claimed until its lease ends", "work", p.id, "error", err)
	}
}

func isStatus(err error, status ...int) bool {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, s := range status {
		if e.StatusCode == s {
			return true
		}
	}
	return false
}

// refused reports whether a request would be refused again.
func refused(err error) bool {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.StatusCode/100 == 4 && !isStatus(err, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests)
}

// plainly returns an error without what only the SDK's developers need.
func plainly(err error) string {
	var e *anthropic.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("the service answers %d %s", e.StatusCode, http.StatusText(e.StatusCode))
	}
	text := strings.TrimSpace(err.Error())
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
