package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/store"
)

// owners records which server owns each sandbox, in a store that two servers share.
type owners struct {
	mu sync.Mutex
	of map[string]string
}

// ownedStore is one server's view of the shared store.
type ownedStore struct {
	store.Store
	self string
	*owners
}

func (s ownedStore) PutSandbox(ctx context.Context, sb *store.Sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.of[sb.ID]; o != "" && o != s.self {
		return bothy.Errorf(bothy.CodeMisdirected, "it belongs to %s", o)
	}
	s.of[sb.ID] = s.self
	return s.Store.PutSandbox(ctx, sb)
}

// take works like store.Hosts.TakeSandbox.
func (s ownedStore) take(ctx context.Context, sb *store.Sandbox) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row, err := s.Store.Sandbox(ctx, sb.ID)
	if err != nil || row.Moving != sb.Moving || s.of[sb.ID] == s.self {
		return false, err
	}
	after := *sb
	after.Moving = ""
	s.of[sb.ID] = s.self
	if err := s.Store.PutSandbox(ctx, &after); err != nil {
		return false, err
	}
	sb.Version = after.Version
	return true, nil
}

// pair is two servers that share a store.
type pair struct {
	one, two *world
	to       ownedStore
	// parked and unparked count how often requests were held back and released.
	parked, unparked int
	// lost makes the answer of a move get lost.
	lost bool
	// sending is called once the existing snapshots have been sent.
	sending func()
}

func newPair(t *testing.T) *pair {
	p := &pair{one: newWorld(t), two: newWorld(t)}
	o := &owners{of: map[string]string{}}
	var shared store.Store
	p.one.reopen(func(opts *lifecycle.Options) {
		shared = opts.Store
		opts.Store = ownedStore{shared, "one", o}
	})
	p.two.reopen(func(opts *lifecycle.Options) {
		p.to = ownedStore{shared, "two", o}
		opts.Store = p.to
	})
	return p
}

// begun signals the first read.
type begun struct {
	io.Reader
	once sync.Once
	at   chan struct{}
}

func (b *begun) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.at) })
	return b.Reader.Read(p)
}

func (p *pair) move(id string) (refused bool, err error) {
	_, refused, err = p.one.Depart(p.one.t.Context(), id, store.Departure{
		To: "two", Park: func(context.Context) func() {
			if p.parked++; p.sending != nil {
				p.sending()
			}
			return func() { p.unparked++ }
		},
		Carry: func(ctx context.Context, o store.Offer, send func(io.Writer) error) (store.Carried, error) {
			r, w := io.Pipe()
			body, done := &begun{Reader: r, at: make(chan struct{})}, make(chan error, 1)
			go func() {
				err := p.two.Arrive(ctx, o, body, p.to.take)
				r.CloseWithError(io.ErrClosedPipe)
				done <- err
			}()
			select {
			case err := <-done:
				return store.CarriedRefused, err
			case <-body.at:
			}
			w.CloseWithError(send(w))
			err := <-done
			switch {
			case p.lost:
				return store.CarriedUnknown, errors.New("the answer is lost")
			case err != nil:
				return store.CarriedRefused, err
			}
			return store.CarriedOver, nil
		},
	})
	return refused, err
}

// on checks which of the two servers has the machine, and what users see.
func (p *pair) on(t *testing.T, what, id string, want *world, state bothy.State) {
	t.Helper()
	for _, w := range []*world{p.one, p.two} {
		if has := w.Here(id); has != (w == want) {
			t.Errorf("%s: a machine exists: %v", what, has)
		}
	}
	sb, err := p.to.Store.Sandbox(t.Context(), id)
	if err != nil || sb.State != state || sb.Moving != "" {
		t.Errorf("%s: it is %+v, %v", what, sb, err)
	}
	if p.parked != p.unparked {
		t.Errorf("%s: parked %d times and unparked %d times", what, p.parked, p.unparked)
	}
}

func TestASandboxDeparts(t *testing.T) {
	p := newPair(t)
	sb := p.one.create(bothy.SandboxCreate{Name: "box"})
	before := p.one.get(sb.ID)
	if refused, err := p.move(sb.ID); err != nil || refused {
		t.Fatal(refused, err)
	}
	p.on(t, "moved", sb.ID, p.two, bothy.StateRunning)
	if after := p.two.get(sb.ID); !after.StartedAt.Equal(*before.StartedAt) || after.Name != "box" || after.Resumed != nil {
		t.Errorf("before it was %+v, and after it %+v", before, after)
	}
	// A late call does nothing here, and its error names the new host.
	_, err := p.one.Exec(p.one.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "true"}})
	wantCode(t, err, bothy.CodeMisdirected)
	_, err = p.one.Pause(p.one.me(), sb.ID, bothy.PauseOptions{})
	wantCode(t, err, bothy.CodeMisdirected)
	wantCode(t, p.one.Terminate(p.one.me(), sb.ID), bothy.CodeMisdirected)
	if err := p.two.Terminate(p.two.me(), sb.ID); err != nil {
		t.Error(err)
	}
}

// If the network cannot be opened after a move it is opened later, with the policy at that time.
func TestTheNetworkIsOpenedAfterAMove(t *testing.T) {
	p := newPair(t)
	sb := p.one.create(bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	var refused atomic.Int64
	refuse := func(n bothy.Network) error {
		if n.Mode == bothy.NetworkOff {
			return nil // before the host owns it
		}
		refused.Add(1)
		return errors.New("planted")
	}
	set := func(f func(bothy.Network) error) {
		p.two.gateways.mu.Lock()
		defer p.two.gateways.mu.Unlock()
		p.two.gateways.refuse = f
	}
	set(refuse)
	if refused, err := p.move(sb.ID); err != nil || refused {
		t.Fatal(refused, err)
	}
	p.on(t, "moved", sb.ID, p.two, bothy.StateRunning)
	gw := p.two.gateways.last()
	mode := func() bothy.NetworkMode {
		gw.mu.Lock()
		defer gw.mu.Unlock()
		return gw.policy.Mode
	}
	if mode() != bothy.NetworkOff || refused.Load() != 1 {
		t.Errorf("the network is %s after %d refusals", mode(), refused.Load())
	}
	p.two.clock.pass(2 * time.Second)
	eventually(t, "it is tried again", func() bool { return refused.Load() == 2 })
	set(nil)
	eventually(t, "the network is open", func() bool {
		p.two.clock.pass(time.Minute)
		return mode() == bothy.NetworkOpen
	})
}

func TestAPausedSandboxDeparts(t *testing.T) {
	p := newPair(t)
	sb := p.one.create(bothy.SandboxCreate{})
	named, err := p.one.CreateSnapshot(p.one.me(), sb.ID, bothy.SnapshotCreate{Name: "named"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.one.Pause(p.one.me(), sb.ID, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := p.move(sb.ID); err != nil || refused {
		t.Fatal(refused, err)
	}
	p.on(t, "moved", sb.ID, nil, bothy.StatePaused)
	if _, err := p.two.Resume(p.two.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.two.machine(sb.ID).RestoredFrom(); got == "" {
		t.Errorf("it was resumed without its memory")
	}
	if _, err := p.two.Rollback(p.two.me(), sb.ID, named.ID); err != nil {
		t.Error(err)
	}
	_ = n
}

// After any failure the sandbox continues where it was, and can be moved later.
func TestADepartureFails(t *testing.T) {
	p := newPair(t)
	sb := p.one.create(bothy.SandboxCreate{})
	for _, step := range []string{"move.accepted", "move.stopped", "move.received", "move.awake", "lifecycle.freeze", "lifecycle.move.pausing"} {
		remove := failpoint.Set(step, func() error { return errors.New("planted") })
		_, err := p.move(sb.ID)
		remove()
		if err == nil {
			t.Fatalf("%s: it was moved", step)
		}
		p.on(t, step, sb.ID, p.one, bothy.StateRunning)
		if _, err := p.one.Exec(p.one.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "true"}}); err != nil {
			t.Errorf("%s: a command afterwards: %v", step, err)
		}
	}
	p.two.change = nil
	p.lost = true
	if _, err := p.move(sb.ID); err != nil {
		t.Errorf("a move that succeeded, but whose answer was lost: %v", err)
	}
	p.on(t, "without an answer", sb.ID, p.two, bothy.StateRunning)
}

// A host without room refuses before the sandbox is stopped.
func TestADepartureIsRefused(t *testing.T) {
	p := newPair(t)
	sb := p.one.create(bothy.SandboxCreate{})
	p.two.Drain()
	refused, err := p.move(sb.ID)
	if !refused || bothy.ErrorCode(err) != bothy.CodeShuttingDown || p.parked != 0 {
		t.Errorf("%v %v, parked %d times", refused, err, p.parked)
	}
	p.on(t, "refused", sb.ID, p.one, bothy.StateRunning)
}
