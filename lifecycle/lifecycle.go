// Package lifecycle is the service behind every door: it makes sandboxes, keeps
// them to their time and limits, and ends them. It knows engines, guests,
// gateways and the store by their interfaces only; server introduces them.
//
// Each verb is a file. The states and what may follow what are a table in
// state.go. A sandbox's verbs exclude each other by a lock of its own; commands
// and files take no lock.
package lifecycle

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/lifecycle/ledger"
	"github.com/bothy-dev/bothy/lifecycle/register"
	"github.com/bothy-dev/bothy/lifecycle/warm"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// Options are the parts that the service is made of. All are needed but those
// that say otherwise.
type Options struct {
	Store     store.Store
	Templates Templates
	// Goldens are the golden snapshots of other hosts; nil for a server that is alone.
	Goldens warm.SharedGoldens
	// TemplatesUsed is how many bytes a project's own templates take up. Optional.
	TemplatesUsed func(project string) (int64, error)
	// TemplateMaker makes templates of sandboxes. Optional.
	TemplateMaker TemplateMaker
	// Blobs keeps the files of snapshots.
	Blobs blob.Store
	// Engines by name, and those that are opened when they are first needed;
	// Engine is the one that requests get by default.
	Engines map[string]bothy.Engine
	Openers map[string]engines.Opener
	Engine  string
	// Auto is the policy for bothy.EngineAuto: the first that can be used.
	Auto []engines.Choice
	// Builds keeps the builds of engines that snapshots need. Optional.
	Builds Builds
	// GuestImage is the path of the image that holds the guest.
	GuestImage string
	// NewGateway attaches a gateway, shut, to a network device.
	NewGateway func(sandboxID string, c bothy.NetDevice) (bothy.Gateway, error)
	// NewGuest makes the host's side of a guest, which is dialled by dial.
	NewGuest func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest
	// Vault encrypts secrets for the store. Without one, requests with secrets
	// are refused.
	Vault instance.Vault
	// CheckNetwork and CheckSecrets refuse what a gateway would refuse, before
	// anything is started for it. Optional.
	CheckNetwork func(bothy.Network) error
	CheckSecrets func([]bothy.Secret) error
	// NetworkLogs has what gateways decided, also those that are gone. Optional.
	NetworkLogs NetworkLogs
	// CABundle is PEM that every sandbox trusts. Optional.
	CABundle string
	// HostLabels are this host's, which may be none; nil where there is no cluster.
	HostLabels map[string]string
	// NoHost is the error for memory that can be woken on no host of the cluster; nil where there
	// is no cluster, and files are woken instead.
	NoHost func(ctx context.Context, snapshotID string, needs bothy.MemoryNeeds) error
	// Elsewhere counts the sandboxes of a project that run on other hosts, where some share
	// the store. Optional.
	Elsewhere func(ctx context.Context, projectID string) (int, error)
	// StartShared stores a sandbox that begins to run within bounds for all hosts (see
	// store.Hosts). It is set where Elsewhere is.
	StartShared func(ctx context.Context, sb *store.Sandbox, b store.StartBounds) error
	// MaxSandboxes bounds live sandboxes on this host. 0 means no bound.
	MaxSandboxes int
	// MinFreeMemoryMB is what the host keeps for itself: a create that finds
	// less is refused. 0 means no bound.
	MinFreeMemoryMB int
	// AdmissionWait is how long a request waits for a place where the host is
	// full; 0 refuses it at once.
	AdmissionWait time.Duration
	// StartsAtOnce bounds the sandboxes that are starting; the others wait for
	// their turn. 0 means a number that suits the host's processors.
	StartsAtOnce int
	// Observe is told of every event. Optional.
	Observe func(bothy.Event)
	// Plans bound what projects use. Optional.
	Plans admission.Plans
	// Meter counts what sandboxes use. Optional.
	Meter Meter
	// Retention bounds snapshots.
	Retention Retention
	// ArchiveKey signs what is exported. What is imported keeps its memory if this key
	// or one of TrustedKeys signed it.
	ArchiveKey  snapshot.Key
	TrustedKeys []snapshot.PublicKey
	// FreeDisk tells how many bytes there are left where a folder is; nil asks the host.
	FreeDisk func(dir string) (int64, error)
	// Pool says what is made before anybody asks for it.
	Pool warm.Options
	// FreeMemoryMB tells what the host has left; nil asks the host.
	FreeMemoryMB func() int
	// DiskFull reports that the disk under the sandboxes has no room for another one.
	// Optional.
	DiskFull func() bool
	// Register is a folder that records, apart from the store, which machines belong to sandboxes.
	// Optional.
	Register string
	// Doubtful says that the store has lost something: what it does not know of is not
	// removed.
	Doubtful bool
	// Clock is the system's when nil.
	Clock bothy.Clock
	Log   *slog.Logger
}

// Retention says how many snapshots are kept. Zero means no bound. A snapshot
// that a paused sandbox sleeps in is kept in any case.
type Retention struct {
	// PerSandbox is how many of one sandbox are kept; the oldest go first.
	PerSandbox int
	// For is how long each is kept.
	For time.Duration
	// ProjectBytes bounds what a project's snapshots take up: what would go
	// over it is refused.
	ProjectBytes int64
	// MinFreeDisk is how many bytes of the host's disk imports leave.
	MinFreeDisk int64
}

// Templates finds templates. It is asked by the service itself, so it checks no scope.
type Templates interface {
	// Lookup finds one that is for all by its name, or any by its digest.
	Lookup(name string) (*bothy.Template, error)
	// LookupFor finds one as a project sees it.
	LookupFor(ctx context.Context, project, name string) (*bothy.Template, error)
}

// Service implements bothy.SandboxService, SnapshotService, ExecService,
// CodeService, EventService, NetworkService, MetricsService, PortService, LogService
// and LimitsService.
type Service struct {
	o     Options
	clock bothy.Clock
	log   *slog.Logger

	admission *admission.Controller
	ledger    *ledger.Ledger
	engines   *engines.Set
	machines  *instance.Machines
	warm      *warm.Pool
	claims    claims
	transfers *transfers
	// departures are the sandboxes that were given to other hosts.
	departures departures
	lost       lostCounts
	// checkpointSlots bounds how many checkpoints are being taken.
	checkpoints     checkpointCounts
	checkpointSlots chan struct{}
	// comparisons are under way.
	comparisons chan struct{}
	// remote is Blobs where that carries snapshots to object storage, and else nil.
	remote  blob.Remote
	trusted []snapshot.PublicKey // whose archives keep their memory

	// background ends what runs on its own: watchers and timers.
	background context.Context
	stop       context.CancelFunc
	watchers   sync.WaitGroup

	register register.Register
	// recovered is set when machines that were not adopted may be removed, and pooled
	// when golden snapshots of an engine are to be looked for.
	recovered, pooled atomic.Bool

	mu        sync.Mutex
	instances map[string]*instance.Instance
	// unattached are the sandboxes that may run and that this server has no hold of
	// yet.
	unattached map[string]*unattached
	// unclaimed are the machines that the store has lost the sandboxes of.
	unclaimed map[string]*unclaimed
}

var (
	_ bothy.SandboxService = (*Service)(nil)
	_ bothy.ExecService    = (*Service)(nil)
	_ bothy.EventService   = (*Service)(nil)
	_ bothy.NetworkService = (*Service)(nil)
	_ bothy.CodeService    = (*Service)(nil)
	_ bothy.MetricsService = (*Service)(nil)
	_ bothy.PortService    = (*Service)(nil)
	_ bothy.LogService     = (*Service)(nil)
	_ bothy.LimitsService  = (*Service)(nil)
)

// New makes the service. Call Recover before serving.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Service{
		o: o, clock: o.Clock, log: o.Log,
		background: ctx, stop: stop, instances: map[string]*instance.Instance{}, unattached: map[string]*unattached{}, unclaimed: map[string]*unclaimed{}, register: register.Register{Dir: o.Register},

		claims: claims{by: map[string]int64{}}, transfers: newTransfers(), comparisons: make(chan struct{}, maxComparisons), checkpointSlots: make(chan struct{}, checkpointsAtOnce), trusted: trustedKeys(o),
	}
	s.remote, _ = o.Blobs.(blob.Remote)
	var start func(context.Context, *store.Sandbox, bool) error
	if o.StartShared != nil {
		start = s.startShared
	}
	s.ledger = ledger.New(ledger.Options{Store: o.Store, Start: start, Observe: o.Observe, Clock: o.Clock, Log: o.Log, Background: ctx})
	s.engines = engines.New(engines.Options{
		Open: o.Engines, Openers: o.Openers, Default: o.Engine, Auto: o.Auto, Clock: o.Clock, Log: o.Log, Background: ctx,
		Opened: s.engineOpened, Step: s.tellStep,
	})
	s.machines = instance.New(instance.Options{
		NewGateway: o.NewGateway, NewGuest: o.NewGuest, Vault: o.Vault, CheckSecrets: o.CheckSecrets, CABundle: o.CABundle,
		GuestImage: o.GuestImage, Patience: s.engines.Patience, Clock: o.Clock, Log: o.Log, Background: ctx,
	}, instanceOwner{s})
	s.admission = admission.New(admission.Options{
		Plans: o.Plans, Elsewhere: o.Elsewhere, MaxSandboxes: o.MaxSandboxes, MinFreeMemoryMB: o.MinFreeMemoryMB, Wait: o.AdmissionWait,
		StartsAtOnce: o.StartsAtOnce, FreeMemoryMB: o.FreeMemoryMB, Clock: o.Clock, Background: ctx,
	}, host{s})
	s.warm = warm.New(warm.Dependencies{
		Options: o.Pool, Known: o.Templates, Engines: s.engines, Machines: s.machines, Busy: s.admission.Busy,
		FreeMemoryMB: s.admission.FreeMemoryMB, GuestImage: o.GuestImage, CABundle: o.CABundle,
		Shared: o.Goldens, RestoreMemory: s.restoreTemplate, Clock: o.Clock, Log: o.Log, Background: ctx,
	})
	if o.Elsewhere != nil {
		s.watchers.Go(func() { s.ledger.PollEvents(pollEvents) })
	}
	return s
}

// pollEvents is how often it is looked whether other hosts have stored events.
const pollEvents = time.Second

// StartPool begins to make what is wanted ahead of demand. Call it after Recover. It
// continues until Close.
func (s *Service) StartPool() {
	if s.warm.Off() {
		return
	}
	s.pooled.Store(true)
	s.watchers.Go(func() { s.warm.Run(s.background) })
}

// PoolContents tells what is held ready of each kind.
func (s *Service) PoolContents() []bothy.HostPoolItem { return s.warm.Contents() }

// Pool tells what is held ready.
func (s *Service) Pool(ctx context.Context) warm.Stats { return s.warm.Stats(ctx) }

// engineOpened looks for what an earlier server left in an engine that has just been
// opened.
func (s *Service) engineOpened(ctx context.Context, name string, e bothy.Engine) {
	if s.recovered.Load() {
		if err := s.sweepEngine(ctx, name, e); err != nil {
			s.log.Warn("cannot remove what was left of machines", "engine", name, "error", err)
		}
	}
	if s.pooled.Load() && s.background.Err() == nil {
		s.watchers.Go(s.warm.FindGoldens)
	}
}

// tellStep tells a project that waits for an engine what is being done for it.
func (s *Service) tellStep(ctx context.Context, project, engine, step string) {
	s.ledger.EmitFor(ctx, bothy.EventEnginePreparing, "", project, map[string]string{"engine": engine, "step": step})
}

// OpenEngines opens what the policy for requests that name no engine may choose. Call it
// after Recover.
func (s *Service) OpenEngines(ctx context.Context) { s.engines.OpenAll(ctx) }

// Events tells what happened to the caller's objects.
func (s *Service) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	return s.ledger.Events(ctx, f, fn)
}

// EventsBackwards tells what happened to the caller's objects, the latest first.
func (s *Service) EventsBackwards(ctx context.Context, fn func(bothy.Event) error) error {
	return s.ledger.EventsBackwards(ctx, fn)
}

// Emit records something that happened to a sandbox outside the service.
func (s *Service) Emit(ctx context.Context, typ, id, project string, data map[string]string) {
	s.ledger.EmitFor(ctx, typ, id, project, data)
}

// LastEvent implements bothy.EventService.
func (s *Service) LastEvent(ctx context.Context) (int64, error) { return s.ledger.LastEvent(ctx) }

// instanceOwner is what instances ask of the service.
type instanceOwner struct{ s *Service }

func (o instanceOwner) Runs(l *instance.Instance) bool { return o.s.instance(l.ID) == l }
func (o instanceOwner) WhyGone(ctx context.Context, l *instance.Instance) error {
	return o.s.whyGone(ctx, l)
}

func (o instanceOwner) Killed(ctx context.Context, l *instance.Instance, process string) {
	o.s.ledger.EmitFor(ctx, bothy.EventSandboxOOM, l.ID, l.Project, map[string]string{"process": process})
}

func (o instanceOwner) OverLimit(ctx context.Context, l *instance.Instance, x bothy.Exit) error {
	return o.s.terminate(ctx, l.ID, x)
}

// host is what admission asks of the service.
type host struct{ s *Service }

func (h host) Shrink() bool { return h.s.warm.Shrink(h.s.background) }
func (h host) Started()     { h.s.warm.Poke() }

// SlowestStart is that of all engines: those that start now may be on any.
func (h host) SlowestStart(d time.Duration) time.Duration {
	slowest := d
	for name := range h.s.engines.Opened() {
		slowest = max(slowest, h.s.engines.Patience(name, d))
	}
	return slowest
}

// Drain starts no sandbox any more: who asks for one, or waits for a place, is
// told that the server is shutting down. What has begun continues.
func (s *Service) Drain() {
	s.admission.Close()
}

// Close lets go of the live sandboxes without ending them: they run on, and
// the next server's Recover finds them. Machines without an owner are ended.
func (s *Service) Close() error {
	s.Drain()
	s.mu.Lock()
	all := make([]*instance.Instance, 0, len(s.instances))
	for _, l := range s.instances {
		all = append(all, l)
	}
	s.instances = map[string]*instance.Instance{}
	s.mu.Unlock()
	s.stop()
	for _, l := range all {
		l.Detach()
	}
	s.watchers.Wait()
	s.warm.Close()
	s.ledger.StopRetries()
	s.ledger.Flush(context.Background())
	return nil
}

// Live counts the sandboxes that are running here.
func (s *Service) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.instances)
}

// Waiting counts the requests that wait to be admitted.
func (s *Service) Waiting() int { return s.admission.Waiting() }

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// trustedKeys are the server's own key and those that its operator added.
func trustedKeys(o Options) []snapshot.PublicKey {
	if own := o.ArchiveKey.Public(); own != "" {
		return append([]snapshot.PublicKey{own}, o.TrustedKeys...)
	}
	return o.TrustedKeys
}

// repeat does something again and again until ctx ends.
func repeat(ctx context.Context, every time.Duration, do func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do()
		}
	}
}

// maxComparisons bounds how many run at once: each holds two root file systems.
const maxComparisons = 2

// TemplateMaker makes templates of what sandboxes have changed, and compares that.
type TemplateMaker interface {
	// Capture makes a template of a base and a tar of changes, and fills in t.
	Capture(ctx context.Context, t, base *bothy.Template, changes string) error
	// Compare lists at most limit files that differ between two sandboxes, each given
	// as a base and a tar of changes.
	Compare(ctx context.Context, sinceBase *bothy.Template, since string, nowBase *bothy.Template, now string, limit int) (*bothy.SnapshotChanges, error)
	// HoldsSnapshot returns the template that needs a snapshot, or nil.
	HoldsSnapshot(id string) (*bothy.Template, error)
}
