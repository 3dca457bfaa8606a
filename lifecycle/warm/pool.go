package warm

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Options configure what is prepared ahead of demand. The zero value prepares nothing.
type Options struct {
	// Golden stores golden snapshots, at most GoldenMax.
	Golden    blob.Store
	GoldenMax int
	// Spares is the maximum number of prespawned machines.
	Spares int
	// Ready is how many machines of each of Templates are kept ready at the default size. Other
	// requested classes, and bursts, get more: at most ReadyMax in total.
	Ready     int
	ReadyMax  int
	Templates []string
	// MinFreeMemoryMB is the host memory to leave free. When less is free, ready machines are
	// given up.
	MinFreeMemoryMB int
}

const (
	// demandFor is how long a requested class is kept ready, and burstFor how long the largest
	// burst of requests is remembered.
	demandFor = 10 * time.Minute
	burstFor  = time.Minute
	// often is how many requests in that time make a class worth keeping ready.
	often = 2
	// burstIn is the window for a burst.
	burstIn = time.Second
	// maxRemembered limits the remembered requests per class.
	maxRemembered = 128
	// poolLook is how often the pool checks by itself when nothing happens.
	poolLook = 5 * time.Second
	// poolRest and poolRestMax limit the rest after each thing made, which is as long as making
	// it took.
	poolRest    = 10 * time.Millisecond
	poolRestMax = 2 * time.Second
	// poolQuiet is how long no sandbox may have been starting before the pool makes something:
	// a new sandbox's first command has priority.
	poolQuiet = 25 * time.Millisecond
	// poolMargin is how many MB above the minimum must be free for anything to be made: as much
	// as one thing may take.
	poolMargin = 128
	// poolPatience is how long the pool waits for a quiet moment.
	poolPatience = 10 * time.Second
)

// pool holds the ready machines. They have no owner: they are not stored, do not count against
// limits, and end with the server or are swept by the next one.
type pool struct {
	wake chan struct{} // holds one token

	mu     sync.Mutex
	closed bool
	ready  map[class][]*instance.Instance
	demand map[class]*demand
	// code is when code was last run in a template, by digest.
	code map[string]time.Time
	// busy is when a sandbox was last starting, quiet when no request was waiting, and made
	// when the pool last made something.
	busy, quiet, made time.Time
}

// demand is the recent demand for a class.
type demand struct {
	template *store.Template
	creates  []time.Time
	// starts is when a machine of the class was last started, for whatever reason.
	starts   time.Time
	failures failures
}

func newPool() *pool {
	return &pool{wake: make(chan struct{}, 1), ready: map[class][]*instance.Instance{}, demand: map[class]*demand{}, code: map[string]time.Time{}, quiet: time.Now()}
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// asked records a request for a machine. create distinguishes new sandboxes from resumed ones.
func (p *pool) asked(h class, t *store.Template, now time.Time, create bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.demand[h]
	if d == nil {
		d = &demand{}
		p.demand[h] = d
	}
	d.template, d.starts = t, now
	// A request allows one more attempt, but not every request does.
	d.failures.count = min(d.failures.count, poolTries-1)
	if create {
		d.creates = append(d.creates, now)
		if n := len(d.creates); n > maxRemembered {
			d.creates = slices.Delete(d.creates, 0, n-maxRemembered)
		}
	}
	p.busy = time.Now()
	p.poke()
}

// forget drops the demand for what depends on a snapshot.
func (p *pool) forget(snapshotID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.demand, func(h class, _ *demand) bool { return h.memory == snapshotID })
	p.poke()
}

// touch pauses the pool for a moment.
func (p *pool) touch() {
	p.mu.Lock()
	p.busy = time.Now()
	p.mu.Unlock()
	p.poke()
}

// ranCode records that code was run in a template.
func (p *pool) ranCode(digest string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code[digest] = now
}

// runsCode reports whether code was run recently in a template.
func (p *pool) runsCode(digest string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.code[digest]
	return ok && now.Sub(at) < demandFor
}

// hasMade records that something was made.
func (p *pool) hasMade() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = time.Now()
}

// since counts the requests after a time.
func (d *demand) since(t time.Time) (n int) {
	for _, at := range d.creates {
		if at.After(t) {
			n++
		}
	}
	return n
}

// burst is the size of the largest recent burst.
func (d *demand) burst(now time.Time) (most int) {
	first := 0
	for i, at := range d.creates {
		for at.Sub(d.creates[first]) > burstIn {
			first++
		}
		if now.Sub(at) < burstFor {
			most = max(most, i-first+1)
		}
	}
	return most
}

// Run takes over the golden snapshots of an earlier server, and then keeps the pool filled
// until ctx ends.
func (s *Pool) Run(ctx context.Context) {
	if s.o.Shared {
		go s.fetchImages(ctx)
	}
	s.FindGoldens()
	s.keepPool(ctx)
}

// fetchImages fetches the images of the pool's templates from other hosts, so that the first
// sandbox of a new host does not wait for them.
func (s *Pool) fetchImages(ctx context.Context) {
	for _, name := range s.o.Templates {
		_, err := s.o.Known.LookupFor(ctx, "", name)
		if err != nil && ctx.Err() == nil && bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
			s.o.Log.Warn("cannot fetch the image of a template of the pool; its first sandbox fetches it", "template", name, "error", err)
		}
		s.pool.poke()
	}
}

// FindGoldens takes over the golden snapshots of an earlier server.
func (s *Pool) FindGoldens() {
	for _, h := range s.readGoldens(s.o.Background) {
		if t, err := s.o.Known.Lookup(h.digest); err == nil && s.wantsGolden(h, t) {
			s.logPool("find a golden snapshot", h, s.makeGolden(s.o.Background, h, t))
		}
	}
}

func (s *Pool) logPool(what string, h class, err error) {
	if err != nil && s.o.Background.Err() == nil {
		s.o.Log.Warn("the pool cannot "+what, "shape", h.String(), "error", err)
	}
}

// keepPool makes and discards, one thing at a time.
func (s *Pool) keepPool(ctx context.Context) {
	for ctx.Err() == nil {
		begun := time.Now()
		if s.poolStep(ctx) {
			s.pool.hasMade()
			sleep(ctx, min(max(time.Since(begun), poolRest), poolRestMax))
			continue
		}
		stop := s.o.Clock.AfterFunc(poolLook, s.pool.poke)
		select {
		case <-s.pool.wake:
			sleep(ctx, poolQuiet)
		case <-ctx.Done():
		}
		stop()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// poolStep does the most useful thing, and reports whether there was one.
func (s *Pool) poolStep(ctx context.Context) bool {
	s.dropUnwanted(ctx)
	switch free, least := s.o.FreeMemoryMB(), s.o.MinFreeMemoryMB; {
	case least > 0 && free < least:
		return s.Shrink(ctx)
	case least > 0 && free < least+poolMargin:
		return false // what is made would have to be given up again
	}
	if !s.quiet() {
		return false
	}
	wanted := s.wanted()
	for _, w := range wanted {
		if s.readyOf(w.class) < w.ready && s.maySucceed(w.class) {
			if s.wantsGolden(w.class, w.template) {
				s.logPool("make a golden snapshot", w.class, s.makeGolden(ctx, w.class, w.template))
				return true
			}
			s.addReady(ctx, w.class, w.template)
			return true
		}
	}
	for _, w := range wanted {
		if w.often && s.wantsGolden(w.class, w.template) {
			s.logPool("make a golden snapshot", w.class, s.makeGolden(ctx, w.class, w.template))
			return true
		}
	}
	return s.addSpare(ctx, wanted)
}

// quiet reports whether no request is waiting for a sandbox, or requests have been waiting so
// long that ready machines would help.
func (s *Pool) quiet() bool {
	starting := s.o.Busy()
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case starting > 0:
	case now.Sub(p.busy) < poolQuiet:
		p.poke()
	default:
		p.quiet = now
		return true
	}
	return now.Sub(p.quiet) > poolPatience && now.Sub(p.made) > poolPatience
}

// want is what a class should have.
type want struct {
	class
	template *store.Template
	often    bool // worth more than spares
	ready    int
	spares   int
	last     time.Time
}

// wanted returns the classes in demand, latest first.
func (s *Pool) wanted() []want {
	now := s.o.Clock.Now()
	all := map[class]want{}
	for _, name := range s.o.Templates {
		if s.o.Engines.Default() == "" {
			break // the engine is still being opened
		}
		t, err := s.o.Known.Lookup(name)
		if err != nil {
			continue
		}
		if h, t, err := s.defaultShape(t); err == nil {
			all[h] = want{class: h, template: t, often: true, ready: s.o.Ready}
		}
	}
	s.pool.mu.Lock()
	for h, d := range s.pool.demand {
		_, err := s.o.Known.Lookup(h.digest)
		_, fixed := all[h]
		if now.Sub(d.starts) > demandFor && !(fixed && d.failures.count > 0) || bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
			delete(s.pool.demand, h)
			continue
		}
		w := all[h]
		if !fixed {
			w = want{class: h, template: d.template, often: d.since(now.Add(-demandFor)) >= often}
		}
		if w.often {
			w.ready = max(w.ready, 1, d.burst(now))
		}
		w.last = d.starts
		all[h] = w
	}
	s.pool.mu.Unlock()
	list := slices.SortedFunc(maps.Values(all), func(a, b want) int {
		return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.String(), b.String()))
	})
	left := s.o.ReadyMax
	for i := range list {
		list[i].ready = min(list[i].ready, left)
		left -= list[i].ready
	}
	shareSpares(list, s.o.Spares, now)
	return list
}

// shareSpares distributes the spares over the classes requested in the last minute, or gives
// all to the latest.
func shareSpares(list []want, spares int, now time.Time) {
	if len(list) == 0 {
		return
	}
	n := 1
	for n < min(len(list), spares) && now.Sub(list[n].last) < burstFor {
		n++
	}
	for i := range spares {
		list[i%n].spares++
	}
}

func (s *Pool) readyOf(h class) int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return len(s.pool.ready[h])
}

// addReady prepares one ready machine.
func (s *Pool) addReady(ctx context.Context, h class, t *store.Template) {
	begun := time.Now()
	l, err := s.prepare(ctx, h, t)
	p := s.pool
	p.mu.Lock()
	if err == nil && p.closed {
		err = context.Canceled
	}
	if err == nil {
		s.o.Machines.WatchIdleness(l, false, false)
		p.ready[h] = append(p.ready[h], l)
		l = nil
		if d := p.demand[h]; d != nil {
			d.failures = failures{}
		}
	}
	var failed failures
	if err != nil {
		failed = p.fails(h, t, s.o.Clock.Now())
	}
	n := len(p.ready[h])
	p.mu.Unlock()
	if err != nil {
		s.Discard(l)
		s.logFailure(h, err, failed)
		return
	}
	s.o.Log.Info("a machine is ready", "template", t.Name, "shape", h.String(), "ready", n,
		"ms", time.Since(begun).Milliseconds(), "pool_mb", s.Stats(ctx).MemoryBytes>>20)
}

// prepare starts a machine that lacks only an owner. Its gateway is closed.
func (s *Pool) prepare(ctx context.Context, h class, t *store.Template) (*instance.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Engines.Patience(h.engine, instance.StartTimeout))
	defer cancel()
	var undo cleanup.Stack
	defer undo.Run()
	sb := h.sandbox(instance.NewID("sbx"), t)
	g := s.golden(h)
	m, key, err := s.restoreOrBoot(ctx, sb, h, t, g)
	if err != nil {
		return nil, err
	}
	undo.Add(func() { s.o.Machines.Destroy(m) })
	l, err := s.o.Machines.Attach(ctx, sb, m, key)
	if err != nil {
		return nil, err
	}
	undo.Add(l.Detach)
	if err := s.o.Machines.IdentifyAs(ctx, l, sb, t, "", instance.NewSteps()); err != nil {
		if g != nil {
			s.dropGolden(ctx, h, g, err)
		}
		return nil, instance.StartError(m, err)
	}
	if h.memory == "" {
		if err := warm(ctx, l.Guest, t); err != nil {
			return nil, instance.StartError(m, err)
		}
	}
	// Most are assigned with the limits of their class and without anything the guest must
	// know, so set both now. A virtual machine's clock stops while it is frozen, so it gets
	// its identity, with the time, when it is assigned.
	if err := l.Limit(ctx); err != nil {
		return nil, err
	}
	if s.o.Engines.Get(h.engine).Info().Acceleration == "" {
		if err := s.o.Machines.Identify(ctx, l, sb, t, instance.NewSteps()); err != nil {
			return nil, instance.StartError(m, err)
		}
	}
	undo.Release()
	return l, nil
}

// restoreOrBoot starts a machine from its template's memory or a golden snapshot, or boots it
// if there is none or it fails. It returns the key that the guest already has.
func (s *Pool) restoreOrBoot(ctx context.Context, sb *store.Sandbox, h class, t *store.Template, g *golden) (bothy.Machine, string, error) {
	if h.memory != "" {
		return s.o.RestoreMemory(ctx, sb, t, h.memory)
	}
	if g != nil {
		m, err := s.RestoreGolden(ctx, sb, t, g)
		if err == nil {
			return m, g.Key, nil
		}
		if ctx.Err() != nil {
			return nil, "", err
		}
		s.dropGolden(ctx, h, g, err)
	}
	m, err := s.o.Engines.Get(sb.Engine).Start(ctx, s.o.Machines.MachineSpec(sb, t))
	return m, "", err
}

// Claim takes a ready machine for a sandbox, or returns nil. If memory is given, the machine
// was restored from that snapshot.
func (s *Pool) Claim(sb *store.Sandbox, memory string) *instance.Instance {
	h := classOf(sb, memory)
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for list := p.ready[h]; len(list) > 0; list = p.ready[h] {
		l := list[0]
		p.ready[h] = list[1:]
		select {
		case <-l.Machine.Done():
			go s.Discard(l)
			continue
		default:
			return l
		}
	}
	return nil
}

// Discard destroys a machine that no sandbox owns.
func (s *Pool) Discard(l *instance.Instance) {
	if l == nil {
		return
	}
	l.Detach()
	s.o.Machines.Destroy(l.Machine)
}

// dropUnwanted discards ready machines that are no longer wanted, or have died.
func (s *Pool) dropUnwanted(ctx context.Context) {
	wanted := s.wanted()
	want := map[class]int{}
	for _, w := range wanted {
		want[w.class] = w.ready
	}
	var going []*instance.Instance
	p := s.pool
	p.mu.Lock()
	for h, list := range p.ready {
		keep := list[:0:0]
		for _, l := range list {
			select {
			case <-l.Machine.Done():
				going = append(going, l)
				continue
			default:
			}
			if len(keep) < want[h] {
				keep = append(keep, l)
			} else {
				going = append(going, l)
			}
		}
		if p.ready[h] = keep; len(keep) == 0 {
			delete(p.ready, h)
		}
	}
	p.mu.Unlock()
	for _, l := range going {
		s.o.Log.Info("discarding an unneeded ready machine", "sandbox", l.ID)
		s.Discard(l)
	}
	s.dropSpares(ctx, wanted)
}

// Shrink discards one machine to free memory, and reports whether there was one.
func (s *Pool) Shrink(ctx context.Context) bool {
	l := s.anyReady()
	if l == nil {
		return s.dropOneSpare(ctx)
	}
	s.o.Log.Info("the host is short of memory; discarding a ready machine", "sandbox", l.ID)
	s.Discard(l)
	return true
}

// anyReady takes a machine of the class that has most.
func (s *Pool) anyReady() *instance.Instance {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	var most class
	for h, list := range p.ready {
		if len(list) > len(p.ready[most]) {
			most = h
		}
	}
	list := p.ready[most]
	if len(list) == 0 {
		return nil
	}
	p.ready[most] = list[:len(list)-1]
	return list[len(list)-1]
}

// Close discards all machines. None are added afterwards.
func (s *Pool) Close() {
	s.pool.mu.Lock()
	s.pool.closed = true
	all := slices.Concat(slices.Collect(maps.Values(s.pool.ready))...)
	s.pool.ready = map[class][]*instance.Instance{}
	s.pool.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() { s.Discard(l) })
	}
	wg.Wait()
	s.dropSpares(context.Background(), nil)
}

// Stats are the totals of what is ready, for an operator.
type Stats struct {
	Ready  int `json:"ready"`
	Spares int `json:"spares"`
	Golden int `json:"golden"`
	// MemoryBytes is the memory of the ready machines, and GoldenBytes the disk space of the
	// golden snapshots.
	MemoryBytes int64 `json:"memory_bytes"`
	GoldenBytes int64 `json:"golden_bytes"`
}

// Contents lists what is ready for each class, by template.
func (s *Pool) Contents() []bothy.HostPoolItem {
	all := map[class]*bothy.HostPoolItem{}
	item := func(h class) *bothy.HostPoolItem {
		if all[h] == nil {
			name := h.digest
			if t, err := s.o.Known.Lookup(h.digest); err == nil {
				name = t.Name
			}
			all[h] = &bothy.HostPoolItem{Template: name, Engine: h.engine, CPUs: h.cpus, MemoryMB: h.memoryMB, DiskMB: h.diskMB}
		}
		return all[h]
	}
	s.pool.mu.Lock()
	for h, ready := range s.pool.ready {
		if len(ready) > 0 {
			item(h).Ready = len(ready)
		}
	}
	s.pool.mu.Unlock()
	s.goldens.mu.Lock()
	for h, g := range s.goldens.ready {
		item(h).GoldenBytes = g.size
	}
	s.goldens.mu.Unlock()
	list := []bothy.HostPoolItem{}
	for _, i := range all {
		list = append(list, *i)
	}
	slices.SortFunc(list, func(a, b bothy.HostPoolItem) int {
		return cmp.Or(strings.Compare(a.Template, b.Template), strings.Compare(a.Engine, b.Engine), a.MemoryMB-b.MemoryMB, a.CPUs-b.CPUs, a.DiskMB-b.DiskMB)
	})
	return list
}

// Stats returns the totals.
func (s *Pool) Stats(ctx context.Context) (st Stats) {
	s.pool.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(s.pool.ready))...)
	s.pool.mu.Unlock()
	st.Ready = len(all)
	for _, l := range all {
		if m, err := l.Machine.Stats(ctx); err == nil {
			st.MemoryBytes += m.MemoryBytes
		}
	}
	st.Spares = s.countSpares()
	s.goldens.mu.Lock()
	defer s.goldens.mu.Unlock()
	for _, g := range s.goldens.ready {
		st.Golden++
		st.GoldenBytes += g.size
	}
	return st
}
