package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Hosts of a simulation keep their leases, look for the dead and place sandboxes with the code
// that does it in earnest, in a time that costs nothing. Only the database is a pretended one: it
// counts what it is asked. BOTHY_SIM_HOSTS and BOTHY_SIM_SANDBOXES say how many there are.

// simDatabase is what the hosts share.
type simDatabase struct {
	asked [kinds]atomic.Int64
	rows  atomic.Int64
	away  atomic.Bool

	mu      sync.Mutex
	hosts   []*simHost
	duty    *simHost
	givenUp []*simHost
	t       testing.TB
}

// What a database is asked.
const (
	renewals = iota
	lists
	looksForDead
	giveUps
	looksForDuty
	takesOfDuty
	counts
	kinds
)

var kindNames = [kinds]string{"renewals of leases", "lists of hosts", "looks for dead hosts", "attempts to give one up", "looks for who has a duty", "attempts to take it", "counts by host"}

var errAway = errors.New("the database is unavailable")

func (d *simDatabase) ask(kind int) error {
	if d.away.Load() {
		return errAway
	}
	d.asked[kind].Add(1)
	return nil
}

// counts is what was asked until now.
func (d *simDatabase) counts() (n [kinds]int64) {
	for i := range n {
		n[i] = d.asked[i].Load()
	}
	return n
}

type notAsked = store.Hosts

// simHost is a host, and what it asks the database for.
type simHost struct {
	notAsked // the rest
	d        *simDatabase
	name     string
	keeper   *Keeper
	router   *Router
	lost     chan struct{}
	stop     context.CancelFunc

	// Of the database, under its lock.
	until   time.Time
	dead    bool
	figures bothy.HostFigures

	renewed                atomic.Pointer[time.Time]
	live, frozen, refusals atomic.Int64
}

const (
	simCPUs   = 64
	simMemory = 256 << 30
	// simSandbox is what one takes.
	simSandbox = 64 << 20
	simMax     = 2000
)

func (h *simHost) Self() string          { return h.name }
func (h *simHost) Renewed() time.Time    { return *h.renewed.Load() }
func (h *simHost) Lost() <-chan struct{} { return h.lost }
func (h *simHost) full() bool            { return h.live.Load() >= simMax }

// renew renews the lease, as store/postgres does.
func (h *simHost) renew(times Times) {
	sent := time.Now()
	if h.d.ask(renewals) != nil {
		return
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.dead {
		select {
		case <-h.lost:
		default:
			close(h.lost)
		}
		return
	}
	h.until = sent.Add(times.Lease)
	live := int(h.live.Load())
	h.figures = bothy.HostFigures{CPUs: simCPUs, MemoryBytes: simMemory, FreeMemoryBytes: simMemory - int64(live)*simSandbox, Live: live, MaxSandboxes: simMax}
	h.renewed.Store(&sent)
}

func (h *simHost) Peers(context.Context) ([]bothy.ClusterHost, error) {
	if err := h.d.ask(lists); err != nil {
		return nil, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	all := make([]bothy.ClusterHost, len(h.d.hosts))
	for i, o := range h.d.hosts {
		all[i] = bothy.ClusterHost{Name: o.name, Self: o == h, State: bothy.HostUp, LeaseSeconds: time.Until(o.until).Seconds(), HostFigures: o.figures}
		if o.dead {
			all[i].State = bothy.HostDead
		}
	}
	h.d.rows.Add(int64(len(all)))
	return all, nil
}

func (h *simHost) GiveUpHosts(_ context.Context, grace time.Duration, _ store.Fate) (done []store.HostGivenUp, err error) {
	if err := h.d.ask(looksForDead); err != nil {
		return nil, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	for _, o := range h.d.hosts {
		if o == h || o.dead || !o.until.Add(grace).Before(time.Now()) {
			continue
		}
		h.d.asked[giveUps].Add(1)
		if o.keeper.Live() {
			h.d.t.Errorf("%s is given up, and acts for its sandboxes", o.name)
		}
		o.dead = true
		h.d.givenUp = append(h.d.givenUp, o)
		done = append(done, store.HostGivenUp{Host: o.name, Ended: int(o.live.Load())})
	}
	return done, nil
}

func (h *simHost) DutyHost(context.Context, string) (o store.Ownership, err error) {
	if err := h.d.ask(looksForDuty); err != nil {
		return o, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.duty != nil {
		o = store.Ownership{Host: h.d.duty.name, Dead: h.d.duty.dead}
	}
	return o, nil
}

func (h *simHost) TakeDuty(context.Context, string) (bool, error) {
	if err := h.d.ask(takesOfDuty); err != nil {
		return false, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.duty == nil || h.d.duty.dead {
		h.d.duty = h
	}
	return h.d.duty == h, nil
}

// spread counts the sandboxes of the only project on each host.
func (h *simHost) spread(context.Context, string) (map[string]int, error) {
	if err := h.d.ask(counts); err != nil {
		return nil, err
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	on := make(map[string]int, len(h.d.hosts))
	for _, o := range h.d.hosts {
		on[o.name] = int(o.live.Load())
	}
	return on, nil
}

// run is what a host does all the time.
func (h *simHost) run(ctx context.Context, times Times, wg *sync.WaitGroup) {
	ctx, h.stop = context.WithCancel(ctx)
	wg.Go(func() { h.keeper.Run(ctx) })
	wg.Go(func() { h.keeper.GiveUpDead(ctx, h, nil) })
	wg.Go(func() { h.keeper.Duty(ctx, h, DutyAll, func(ctx context.Context) { <-ctx.Done() }) })
	wg.Go(func() {
		t := time.NewTicker(times.Renew())
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				h.renew(times)
			}
		}
	})
}

// create places a sandbox that this host is asked for, as Router.place does.
func (h *simHost) create(byName map[string]*simHost) bool {
	hosts, err := h.router.list(context.Background())
	if err != nil {
		return false
	}
	here, others := h.router.plan(context.Background(), hosts, &needs{project: "default"})
	if here {
		h.live.Add(1)
		return true
	}
	for _, o := range others {
		h.router.count(o.Name, &needs{project: "default"})
		if to := byName[o.Name]; to.keeper.Live() && !to.full() {
			to.live.Add(1)
			return true
		}
		h.refusals.Add(1)
	}
	return false
}

func simSize(t *testing.T, variable string, few int) int {
	text := os.Getenv(variable)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, and not a number", variable, text)
	}
	return n
}

func TestSimulation(t *testing.T) {
	hosts, sandboxes := simSize(t, "BOTHY_SIM_HOSTS", 20), simSize(t, "BOTHY_SIM_SANDBOXES", 2000)
	if sandboxes > hosts*simMax {
		t.Fatalf("%d hosts have no room for %d sandboxes", hosts, sandboxes)
	}
	synctest.Test(t, func(t *testing.T) { simulate(t, hosts, sandboxes) })
}

func simulate(t *testing.T, n, sandboxes int) {
	times := Times{Lease: 15 * time.Second}
	d := &simDatabase{t: t}
	byName := map[string]*simHost{}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	for i := range n {
		time.Sleep(times.Renew() / time.Duration(n)) // they start one after the other
		h := &simHost{d: d, name: fmt.Sprintf("host%04d", i), lost: make(chan struct{})}
		start := time.Now()
		h.renewed.Store(&start)
		h.keeper = NewKeeper(KeeperOptions{
			Times: times, Renewed: h.Renewed, Lost: h.lost, Log: slog.New(slog.DiscardHandler),
			Suspend: func() { h.frozen.Add(1) }, Unsuspend: func() {}, Abandon: func() {},
		})
		h.router = NewRouter(RouterOptions{Hosts: h, Keeper: h.keeper, Full: h.full, Ready: func(string) bool { return false }, Spread: h.spread})
		d.mu.Lock()
		d.hosts, h.until = append(d.hosts, h), start.Add(times.Lease)
		d.mu.Unlock()
		byName[h.name] = h
		h.renew(times)
		h.run(ctx, times, &wg)
	}
	report := func(what string, took time.Duration, before [kinds]int64, rows int64) {
		t.Logf("%s, %v:", what, took)
		for i, now := range d.counts() {
			t.Logf("  %-26s %8.1f a second", kindNames[i], float64(now-before[i])/took.Seconds())
		}
		t.Logf("  %-26s %8.0f a second", "rows of these lists", float64(d.rows.Load()-rows)/took.Seconds())
	}
	frozen := func() (sum int64) {
		for _, h := range d.hosts {
			sum += h.frozen.Load()
		}
		return sum
	}

	const quiet = time.Minute
	before, rows := d.counts(), d.rows.Load()
	time.Sleep(quiet)
	synctest.Wait()
	report(fmt.Sprintf("%d hosts, with nothing to do", n), quiet, before, rows)

	// A balancer that knows nothing brings all of them within ten minutes.
	const busy = 10 * time.Minute
	before, rows = d.counts(), d.rows.Load()
	for range sandboxes {
		time.Sleep(busy / time.Duration(sandboxes))
		if !d.hosts[rand.IntN(n)].create(byName) {
			t.Fatal("a sandbox finds no host")
		}
	}
	report(fmt.Sprintf("while %d sandboxes are made", sandboxes), busy, before, rows)
	byLive := slices.SortedFunc(slices.Values(d.hosts), func(a, b *simHost) int { return cmp.Compare(a.live.Load(), b.live.Load()) })
	least, most, sum, refusals := byLive[0].live.Load(), byLive[n-1].live.Load(), int64(0), int64(0)
	for _, h := range d.hosts {
		sum += h.live.Load()
		refusals += h.refusals.Load()
	}
	t.Logf("  the hosts have from %d to %d of them; %d refusals", least, most, refusals)
	if mean := sum / int64(n); sum != int64(sandboxes) || most > 2*mean+simCPUs*2 {
		t.Errorf("%d sandboxes are on hosts, %d on one, where the mean is %d", sum, most, mean)
	}
	if frozen() > 0 || len(d.givenUp) > 0 {
		t.Errorf("%d hosts were frozen, and %d were given up, for no reason", frozen(), len(d.givenUp))
	}

	// One of a hundred dies.
	dead := d.hosts[:max(1, n/100)]
	died := time.Now()
	for _, h := range dead {
		h.stop()
	}
	for len(d.given()) < len(dead) {
		if time.Since(died) > 10*times.Lease {
			t.Fatalf("%d of %d dead hosts were given up", len(d.given()), len(dead))
		}
		time.Sleep(look)
	}
	took := time.Since(died)
	t.Logf("%d hosts die, and are given up within %v", len(dead), took.Round(look))
	if most := times.Lease + times.Grace() + times.Renew() + look; took > most {
		t.Errorf("that is more than %v", most)
	}
	for i := range 200 {
		if !d.hosts[len(dead)+i%(n-len(dead))].create(byName) {
			t.Error("a sandbox finds no host after that")
		}
	}

	// The database is unavailable for longer than a lease. All freeze their sandboxes, and none is given up.
	const outage = time.Minute
	was := frozen()
	d.away.Store(true)
	time.Sleep(outage)
	synctest.Wait()
	for _, h := range d.hosts[len(dead):] {
		if h.keeper.Live() {
			t.Fatalf("%s goes on without a lease", h.name)
		}
	}
	d.away.Store(false)
	before, rows = d.counts(), d.rows.Load()
	time.Sleep(quiet)
	synctest.Wait()
	report("after the database was unavailable for "+outage.String(), quiet, before, rows)
	if got := frozen() - was; got != int64(n-len(dead)) {
		t.Errorf("%d of %d hosts were frozen while it was unavailable", got, n-len(dead))
	}
	if got := len(d.given()); got != len(dead) {
		t.Errorf("%d hosts were given up because the database was unavailable", got-len(dead))
	}
	for _, h := range d.hosts[len(dead):] {
		if !h.keeper.Live() {
			t.Errorf("%s does not go on", h.name)
		}
	}
}

func (d *simDatabase) given() []*simHost {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.givenUp)
}
