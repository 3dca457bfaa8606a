package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// movePath is where a host offers a sandbox to another.
	movePath = "/cluster/move"
	// headerOffer carries the offer.
	headerOffer = "Bothy-Peer-Offer"
	// admitTime is how long the other host may take to accept or refuse, and answerTime how
	// long to answer once it has received everything.
	admitTime, answerTime = 30 * time.Second, 2 * time.Minute
	// drainLook is how often this host checks whether it should drain, drainAtOnce how many
	// sandboxes leave it at once, and drainAgain how long after a failure a sandbox is tried
	// again.
	drainLook   = time.Second
	drainAtOnce = 2
	drainAgain  = 20 * time.Second
)

// MoverOptions configure a Mover.
type MoverOptions struct {
	Hosts store.Hosts
	Gate  *Gate
	// Depart sends a sandbox to another host, and Arrive receives one: see lifecycle.
	Depart func(ctx context.Context, id string, d store.Departure) (still time.Duration, refused bool, err error)
	Arrive func(ctx context.Context, o store.Offer, body io.Reader, take func(context.Context, *store.Sandbox) (bool, error)) error
	// Own lists this host's sandboxes that can be moved, and ProjectOf returns the project of
	// one.
	Own       func(ctx context.Context) ([]*store.Sandbox, error)
	ProjectOf func(ctx context.Context, id string) (string, error)
	// Event is called for each sandbox that was moved or could not be.
	Event func(ctx context.Context, e bothy.Event)
	// Observe is called with the outcome of a move and how long a running sandbox was frozen.
	Observe func(outcome string, still time.Duration)
	Log     *slog.Logger
}

// Mover moves sandboxes to other hosts and receives theirs.
type Mover struct {
	o      MoverOptions
	router *Router

	// problem says why the last sandbox could not leave.
	problem atomic.Pointer[string]

	mu     sync.Mutex
	moving map[string]bool
}

// NewMover returns a mover that chooses hosts as the router does.
func NewMover(o MoverOptions, r *Router) *Mover {
	m := &Mover{o: o, router: r, moving: map[string]bool{}}
	r.mover = m
	return m
}

// Problem says why a sandbox could not leave this host yet, or returns "".
func (m *Mover) Problem() string {
	if p := m.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// begin marks a sandbox as moving. It returns false if it already was.
func (m *Mover) begin(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moving[id] {
		return false
	}
	m.moving[id] = true
	return true
}

func (m *Mover) end(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.moving, id)
}

// Move moves a sandbox of this host to the named one, or to the best that accepts it. Only
// after a refusal is the next host tried.
func (m *Mover) Move(ctx context.Context, id, to string) (*bothy.MovedSandbox, error) {
	project, err := m.o.ProjectOf(ctx, id)
	if err != nil {
		return nil, err
	}
	targets, err := m.targets(ctx, id, to)
	if err != nil {
		return nil, err
	}
	return m.moveTo(ctx, id, project, targets)
}

// moveTo moves a sandbox of this host to the first target that accepts it.
func (m *Mover) moveTo(ctx context.Context, id, project string, targets []bothy.ClusterHost) (*bothy.MovedSandbox, error) {
	if !m.begin(id) {
		return nil, bothy.Errorf(bothy.CodeConflict, "sandbox %s is already being moved", id).WithHint("Wait until the move has ended.")
	}
	defer m.end(id)
	var last error
	for _, h := range targets {
		still, refused, err := m.o.Depart(ctx, id, store.Departure{
			To: h.Name, Epoch: m.o.Hosts.Epoch(),
			Park: func(ctx context.Context) func() { return m.o.Gate.Park(ctx, id) },
			Carry: func(ctx context.Context, o store.Offer, send func(io.Writer) error) (store.Carried, error) {
				return m.carry(ctx, h, o, send)
			},
		})
		e := bothy.Event{Type: bothy.EventSandboxMoved, SandboxID: id, ProjectID: project, Data: map[string]string{"from": m.o.Hosts.Self(), "to": h.Name}}
		if err == nil {
			e.Data["still_ms"] = strconv.FormatInt(still.Milliseconds(), 10)
			m.report(ctx, e, "moved", still)
			m.o.Log.Info("moved a sandbox", "sandbox", id, "to", h.Name, "still", still.Round(time.Millisecond).String())
			return &bothy.MovedSandbox{SandboxID: id, From: m.o.Hosts.Self(), To: h.Name, StillMS: still.Milliseconds()}, nil
		}
		last = err
		e.Type, e.Data["detail"] = bothy.EventSandboxMoveFailed, bothy.AsError(err).Detail
		m.report(ctx, e, map[bool]string{true: "refused", false: "failed"}[refused], 0)
		m.o.Log.Warn("cannot move a sandbox; it stays on this host", "sandbox", id, "to", h.Name, "refused", refused, "error", err)
		if !refused {
			break
		}
	}
	return nil, last
}

func (m *Mover) report(ctx context.Context, e bothy.Event, outcome string, still time.Duration) {
	m.o.Event(context.WithoutCancel(ctx), e)
	m.o.Observe(outcome, still)
}

// targets returns the hosts that a sandbox may move to, best first.
func (m *Mover) targets(ctx context.Context, id, to string) ([]bothy.ClusterHost, error) {
	hosts, err := m.o.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	if to != "" {
		i := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool { return h.Name == to })
		switch {
		case i < 0:
			return nil, noHost(to)
		case hosts[i].Self:
			return nil, bothy.Errorf(bothy.CodeConflict, "the sandbox is already on the host %s", to).WithHint("Name another host: `bothy host ls`.")
		case hosts[i].State != bothy.HostUp:
			e := bothy.Errorf(bothy.CodeConflict, "the host %s takes no sandboxes: it is %s", to, hosts[i].State)
			if hosts[i].State == bothy.HostDead {
				return nil, e.WithHint("Start its server, or name another host.")
			}
			return nil, e.WithHint("Run `bothy host uncordon %s`, or name another host.", to)
		}
		if n := m.router.needsOfSandbox(ctx, id); !hasLabels(&hosts[i], n.labels) {
			return nil, bothy.Errorf(bothy.CodeConflict, "the sandbox requires a host with the labels %s, which the host %s does not have", labelsText(n.labels), to).
				WithHint("Name another host: `bothy host ls` shows the labels.")
		}
		return hosts[i : i+1], nil
	}
	n := m.router.needsOfSandbox(ctx, id)
	up := slices.DeleteFunc(slices.Clone(hosts), func(h bothy.ClusterHost) bool { return h.Self || !takes(&h) })
	list := slices.DeleteFunc(slices.Clone(up), func(h bothy.ClusterHost) bool { return !n.fits(&h) })
	m.router.sort(ctx, list, n)
	if len(list) == 0 && len(n.labels) > 0 {
		return nil, noRoom(n.labels)
	}
	if len(list) == 0 && len(up) > 0 {
		return nil, NoHost("", *n.memory, up)
	}
	if len(list) == 0 {
		e := bothy.Errorf(bothy.CodeCapacity, "no other host accepts sandboxes now").WithHint("Add one, or uncordon one: `bothy host ls`.")
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	m.router.count(list[0].Name, n)
	return list, nil
}

func noHost(name string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no host %q", name).WithHint("`bothy host ls` lists them.")
}

// carry offers a sandbox to a host, and sends it once the host accepts.
func (m *Mover) carry(ctx context.Context, h bothy.ClusterHost, o store.Offer, send func(io.Writer) error) (store.Carried, error) {
	offer, err := json.Marshal(o)
	if err != nil {
		return store.CarriedRefused, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	accepted := make(chan struct{})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: sync.OnceFunc(func() { close(accepted) })})
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.Name+movePath, r)
	if err != nil {
		return store.CarriedRefused, err
	}
	req.Header.Set("Expect", "100-continue")
	req.Header.Set(headerOffer, base64.StdEncoding.EncodeToString(offer))
	sent := make(chan error, 1)
	go func() {
		admit := time.NewTimer(admitTime)
		defer admit.Stop()
		select {
		case <-accepted:
		case <-admit.C:
			cancel(errors.New("it neither accepts nor refuses the sandbox"))
			sent <- nil
			return
		case <-ctx.Done():
			sent <- nil
			return
		}
		err := send(w)
		w.CloseWithError(err)
		if err == nil {
			time.AfterFunc(answerTime, func() { cancel(errors.New("it does not answer")) })
		}
		sent <- err
	}()
	res, err := m.router.transport.to(h.Name, h.Address).RoundTrip(req)
	if err == nil {
		err = answerOf(res)
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	r.CloseWithError(io.ErrClosedPipe)
	failed := <-sent
	var unsent *notSentError
	var refusal *bothy.Error
	switch {
	case err == nil && failed == nil:
		return store.CarriedOver, nil
	case failed != nil && !errors.Is(failed, io.ErrClosedPipe):
		return store.CarriedUnknown, failed // this host's fault
	case errors.As(err, &unsent):
		return store.CarriedRefused, unreachable(h.Name, err)
	case errors.As(err, &refusal):
		return store.CarriedRefused, refusal
	}
	return store.CarriedUnknown, unreachable(h.Name, err)
}

func unreachable(host string, err error) error {
	e := bothy.Errorf(bothy.CodeStore, "the target host %s does not answer", host).
		WithHint("Check that it is running: `bothy host ls`.").Because(err)
	e.RetryAfter = 5 * time.Second
	return e
}

// refusalForm is why a host refuses a sandbox.
type refusalForm struct {
	Code   bothy.Code `json:"code"`
	Detail string     `json:"detail"`
	Hint   string     `json:"hint,omitempty"`
}

func answerOf(res *http.Response) error {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	var f refusalForm
	if err != nil || json.Unmarshal(body, &f) != nil || f.Detail == "" {
		return errors.Join(err, errors.New(res.Status+": "+string(bytes.TrimSpace(body))))
	}
	return bothy.Errorf(f.Code, "%s", f.Detail).WithHint("%s", f.Hint)
}

// ServeHTTP receives a sandbox that another host offers.
func (m *Mover) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := m.arrive(r)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	m.o.Log.Warn("refused or failed to receive a sandbox from another host", "from", peerName(r.TLS), "error", err)
	e := bothy.AsError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(refusalForm{e.Code, e.Detail, e.Hint})
}

// wanted returns the state that the operator has set for this host. The state read at the last
// renewal may be stale, so unless it is up the database is read.
func (m *Mover) wanted(ctx context.Context) (bothy.HostState, error) {
	if m.o.Hosts.Wanted() == bothy.HostUp {
		return bothy.HostUp, nil
	}
	all, err := m.o.Hosts.Hosts(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(h bothy.ClusterHost) bool { return h.Self })
	if i < 0 {
		return bothy.HostDead, nil
	}
	return all[i].State, nil
}

func (m *Mover) arrive(r *http.Request) error {
	b, err := base64.StdEncoding.DecodeString(r.Header.Get(headerOffer))
	var o store.Offer
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(b, &o) != nil {
		return bothy.Errorf(bothy.CodeInvalid, "the request does not contain an offer of a sandbox")
	}
	wanted, err := m.wanted(r.Context())
	if err != nil {
		return err
	}
	if wanted != bothy.HostUp {
		return bothy.Errorf(bothy.CodeCapacity, "the host %s takes no sandboxes: it is %s", m.o.Hosts.Self(), wanted)
	}
	if !m.router.o.Keeper.Live() {
		return bothy.Errorf(bothy.CodeStore, "the host %s has lost its connection to the database", m.o.Hosts.Self())
	}
	from := peerName(r.TLS)
	return m.o.Arrive(r.Context(), o, r.Body, func(ctx context.Context, sb *store.Sandbox) (bool, error) {
		return m.o.Hosts.TakeSandbox(ctx, from, o.Epoch, sb)
	})
}

// Drain moves this host's sandboxes away while the host is draining, until ctx ends.
func (m *Mover) Drain(ctx context.Context) {
	t := time.NewTicker(drainLook)
	defer t.Stop()
	tried := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if m.o.Hosts.Wanted() != bothy.HostDraining {
			clear(tried)
			m.problem.Store(nil)
			continue
		}
		if m.router.o.Keeper.Live() {
			m.drain(ctx, tried)
		}
	}
}

// drain tries once to move each sandbox on this host.
func (m *Mover) drain(ctx context.Context, tried map[string]time.Time) {
	own, err := m.o.Own(ctx)
	if err != nil {
		m.o.Log.Warn("cannot list the sandboxes of this draining host", "error", err)
		return
	}
	if len(own) == 0 {
		m.problem.Store(nil)
		return
	}
	slots := make(chan struct{}, drainAtOnce)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, sb := range own {
		mu.Lock()
		early := time.Since(tried[sb.ID]) < drainAgain
		mu.Unlock()
		if early {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil || m.o.Hosts.Wanted() != bothy.HostDraining {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := m.Move(ctx, sb.ID, ""); err != nil {
				why := "sandbox " + sb.ID + ": " + bothy.AsError(err).Detail
				m.problem.Store(&why)
				mu.Lock()
				tried[sb.ID] = time.Now()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
