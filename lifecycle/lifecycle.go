// Package lifecycle is the service behind every API: it creates sandboxes, enforces their
// timeouts and limits, and ends them. It knows engines, guests, gateways and the store only by
// their interfaces; server supplies them.
//
// Each verb is a file. The states and their allowed transitions are a table in ledger/state.go.
// A lock per sandbox serialises its verbs; commands and files take no lock.
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

// Options are the components that the service is made of. All are required unless marked
// optional.
type Options struct {
	Store     store.Store
	Templates Templates
	// TemplatesUsed returns how many bytes a project's own templates take up. Optional.
	TemplatesUsed func(project string) (int64, error)
	// TemplateMaker creates templates from sandboxes. Optional.
	TemplateMaker TemplateMaker
	// Blobs stores the files of snapshots.
	Blobs blob.Store
	// Engines are the open engines by name, and Openers open others when first needed. Engine
	// is the default for requests.
	Engines map[string]bothy.Engine
	Openers map[string]engines.Opener
	Engine  string
	// Auto is the policy for bothy.EngineAuto: the first usable one is chosen.
	Auto []engines.Choice
	// Builds keeps the engine builds that snapshots need. Optional.
	Builds Builds
	// GuestImage is the path of the image with the guest.
	GuestImage string
	// NewGateway attaches a gateway to a network device. It starts closed.
	NewGateway func(sandboxID string, c bothy.NetDevice) (bothy.Gateway, error)
	// NewGuest creates the host's side of a guest.
	NewGuest func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest
	// Vault encrypts secrets for the store. Without it, requests with secrets are refused.
	Vault instance.Vault
	// CheckNetwork and CheckSecrets return the error that a gateway would return, before
	// anything is started. Optional.
	CheckNetwork func(bothy.Network) error
	CheckSecrets func([]bothy.Secret) error
	// CheckReach returns the error of a policy that keeps a sandbox from a server. Optional.
	CheckReach func(n bothy.Network, host string, port uint16) error
	// NetworkLogs has the decisions of gateways, including closed ones. Optional.
	NetworkLogs NetworkLogs
	// CABundle is PEM that every sandbox trusts. Optional.
	CABundle string
	// Cluster is the hosts that share the store; nil is Alone.
	Cluster Cluster
	// MaxSandboxes limits running sandboxes on this host. 0 means no limit.
	MaxSandboxes int
	// MinFreeMemoryMB is the memory that the host keeps free: a create that would leave less
	// waits or is refused. 0 means no limit.
	MinFreeMemoryMB int
	// AdmissionWait is how long a request waits for capacity; 0 refuses it at once.
	AdmissionWait time.Duration
	// StartsAtOnce limits concurrent starts; others queue. 0 means a number that suits the
	// host's processors.
	StartsAtOnce int
	// Observe is called with every event. Optional.
	Observe func(bothy.Event)
	// Plans limit what projects use. Optional.
	Plans admission.Plans
	// Meter meters what sandboxes use. Optional.
	Meter Meter
	// Retention limits snapshots.
	Retention Retention
	// ArchiveKey signs exported archives. An imported one keeps its memory only if this key or
	// one of TrustedKeys signed it.
	ArchiveKey  snapshot.Key
	TrustedKeys []snapshot.PublicKey
	// FreeDisk returns the free bytes on a folder's disk; nil asks the host.
	FreeDisk func(dir string) (int64, error)
	// Pool configures what is prepared ahead of demand.
	Pool warm.Options
	// FreeMemoryMB returns the host's available memory; nil asks the host.
	FreeMemoryMB func() int
	// DiskFull reports that the disk has no room for another sandbox. Optional.
	DiskFull func() bool
	// Register is a folder that records, apart from the store, which machines belong to
	// sandboxes. Optional.
	Register string
	// Doubtful reports that the store has lost records: then nothing that it does not know is
	// removed. Optional.
	Doubtful func() bool
	// Clock defaults to the system's clock.
	Clock bothy.Clock
	Log   *slog.Logger
}

// Retention limits how many snapshots are kept. Zero means no limit. The snapshot that a paused
// sandbox resumes from is always kept.
type Retention struct {
	// PerSandbox is how many snapshots of one sandbox are kept; the oldest are deleted first.
	PerSandbox int
	// For is how long each is kept.
	For time.Duration
	// ProjectBytes is the snapshot quota of a project. New snapshots beyond it are refused.
	ProjectBytes int64
	// MinFreeDisk is how many bytes of the host's disk imports leave free.
	MinFreeDisk int64
}

// Templates finds templates. The service calls it for itself, so it checks no scope.
type Templates interface {
	// Lookup finds a public template by name, or any template by digest.
	Lookup(name string) (*store.Template, error)
	// LookupFor finds one as a project sees it.
	LookupFor(ctx context.Context, project, name string) (*store.Template, error)
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
	transfers *transfers
	imports   imports
	// departures are the sandboxes that moved to other hosts.
	departures departures
	lost       lostCounts
	// checkpointSlots limits how many checkpoints are taken at once.
	checkpoints     checkpointCounts
	checkpointSlots chan struct{}
	// comparisons limits concurrent comparisons of snapshots.
	comparisons chan struct{}
	// remote is Blobs if it uploads snapshots to object storage, else nil.
	remote  blob.Remote
	trusted []snapshot.PublicKey // imported archives signed by these keep their memory

	// background is cancelled by stop to end watchers and timers.
	background context.Context
	stop       context.CancelFunc
	watchers   workers

	register register.Register
	// recovered is set once machines that were not adopted may be removed, and pooled once
	// golden snapshots of newly opened engines should be looked for.
	recovered, pooled atomic.Bool

	mu        sync.Mutex
	instances map[string]*instance.Instance
	// unattached are running sandboxes that this server could not attach to yet.
	unattached map[string]*unattached
	// unclaimed are machines whose sandboxes the store has lost.
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

// New returns the service. Call Recover before serving.
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
	if o.Cluster == nil {
		o.Cluster = Alone{o.Store}
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Service{
		o: o, clock: o.Clock, log: o.Log,
		background: ctx, stop: stop, instances: map[string]*instance.Instance{}, unattached: map[string]*unattached{}, unclaimed: map[string]*unclaimed{}, register: register.Register{Dir: o.Register},

		transfers: newTransfers(), comparisons: make(chan struct{}, maxComparisons), checkpointSlots: make(chan struct{}, checkpointsAtOnce), trusted: trustedKeys(o),
	}
	s.remote, _ = o.Blobs.(blob.Remote)
	s.ledger = ledger.New(ledger.Options{Store: o.Store, Start: s.storeStart, Elsewhere: s.endElsewhere, Observe: o.Observe, Clock: o.Clock, Log: o.Log, Background: ctx})
	s.engines = engines.New(engines.Options{
		Open: o.Engines, Openers: o.Openers, Default: o.Engine, Auto: o.Auto, Clock: o.Clock, Log: o.Log, Background: ctx,
		Opened: s.engineOpened, Step: s.emitStep,
	})
	s.machines = instance.New(instance.Options{
		NewGateway: o.NewGateway, NewGuest: o.NewGuest, Vault: o.Vault, CheckSecrets: o.CheckSecrets, CABundle: o.CABundle,
		GuestImage: o.GuestImage, Patience: s.engines.Patience, Clock: o.Clock, Log: o.Log, Background: ctx,
	}, instanceOwner{s})
	s.admission = admission.New(admission.Options{
		Plans: o.Plans, Cluster: o.Cluster, MaxSandboxes: o.MaxSandboxes, MinFreeMemoryMB: o.MinFreeMemoryMB, Wait: o.AdmissionWait,
		StartsAtOnce: o.StartsAtOnce, FreeMemoryMB: o.FreeMemoryMB, Clock: o.Clock, Background: ctx,
	}, host{s})
	s.warm = warm.New(warm.Dependencies{
		Options: o.Pool, Known: o.Templates, Engines: s.engines, Machines: s.machines, Busy: s.admission.Busy,
		FreeMemoryMB: s.admission.FreeMemoryMB, GuestImage: o.GuestImage, CABundle: o.CABundle,
		Shared: o.Cluster.Shared(), RestoreMemory: s.restoreTemplate, Clock: o.Clock, Log: o.Log, Background: ctx,
	})
	if o.Cluster.Shared() {
		s.watchers.Go(func() { s.ledger.PollEvents(pollEvents) })
	}
	return s
}

// pollEvents is how often events that other hosts have stored are looked for.
const pollEvents = time.Second

// StartPool starts preparing machines ahead of demand, until Close. Call it after Recover.
func (s *Service) StartPool() {
	if s.warm.Off() {
		return
	}
	s.pooled.Store(true)
	s.watchers.Go(func() { s.warm.Run(s.background) })
}

// PoolContents returns what is ready, by kind.
func (s *Service) PoolContents() []bothy.HostPoolItem { return s.warm.Contents() }

// Pool returns the totals of what is ready.
func (s *Service) Pool(ctx context.Context) warm.Stats { return s.warm.Stats(ctx) }

// engineOpened removes what an earlier server left in an engine that has just been opened.
func (s *Service) engineOpened(ctx context.Context, name string, e bothy.Engine) {
	if s.recovered.Load() {
		if err := s.sweepEngine(ctx, name, e); err != nil {
			s.log.Warn("cannot remove leftover machines", "engine", name, "error", err)
		}
	}
	if s.pooled.Load() && s.background.Err() == nil {
		s.watchers.Go(s.warm.FindGoldens)
	}
}

// emitStep emits the progress of opening an engine to a project that waits for it.
func (s *Service) emitStep(ctx context.Context, project, engine, step string) {
	s.ledger.EmitFor(ctx, bothy.EventEnginePreparing, "", project, map[string]string{"engine": engine, "step": step})
}

// OpenEngines opens the engines that the auto policy may choose. Call it after Recover.
func (s *Service) OpenEngines(ctx context.Context) { s.engines.OpenAll(ctx) }

// Events streams the events of the caller's objects.
func (s *Service) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	return s.ledger.Events(ctx, f, fn)
}

// EventsBackwards lists the events of the caller's objects, newest first.
func (s *Service) EventsBackwards(ctx context.Context, fn func(bothy.Event) error) error {
	return s.ledger.EventsBackwards(ctx, fn)
}

// Emit records an event of a sandbox that happened outside the service.
func (s *Service) Emit(ctx context.Context, typ, id, project string, data map[string]string) {
	s.ledger.EmitFor(ctx, typ, id, project, data)
}

// LastEvent implements bothy.EventService.
func (s *Service) LastEvent(ctx context.Context) (int64, error) { return s.ledger.LastEvent(ctx) }

// instanceOwner implements what instances need from the service.
type instanceOwner struct{ s *Service }

func (o instanceOwner) Runs(l *instance.Instance) bool { return o.s.instance(l.ID) == l }
func (o instanceOwner) EndedError(ctx context.Context, l *instance.Instance) error {
	return o.s.endedError(ctx, l)
}

func (o instanceOwner) Killed(ctx context.Context, l *instance.Instance, process string) {
	o.s.ledger.EmitFor(ctx, bothy.EventSandboxOOM, l.ID, l.Project, map[string]string{"process": process})
}

func (o instanceOwner) OverLimit(ctx context.Context, l *instance.Instance, x bothy.Exit) error {
	return o.s.terminate(ctx, l.ID, x)
}

// host implements what admission needs from the service.
type host struct{ s *Service }

func (h host) Shrink() bool { return h.s.warm.Shrink(h.s.background) }
func (h host) Started()     { h.s.warm.Poke() }

// SlowestStart considers all engines, since any may be starting.
func (h host) SlowestStart(d time.Duration) time.Duration {
	slowest := d
	for name := range h.s.engines.Opened() {
		slowest = max(slowest, h.s.engines.Patience(name, d))
	}
	return slowest
}

// Drain refuses new starts, including those that are queued, because the server is shutting
// down. Starts in progress continue.
func (s *Service) Drain() {
	s.admission.Close()
}

// Close detaches from the running sandboxes without ending them, so that the next server's
// Recover finds them. Ready machines without a sandbox are destroyed.
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
	s.watchers.close()
	s.warm.Close()
	s.ledger.StopRetries()
	s.ledger.Flush(context.Background())
	return nil
}

// Live counts the running sandboxes on this host.
func (s *Service) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.instances)
}

// Waiting counts the requests in the admission queue.
func (s *Service) Waiting() int { return s.admission.Waiting() }

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// trustedKeys returns the server's own key and those that its operator added.
func trustedKeys(o Options) []snapshot.PublicKey {
	if own := o.ArchiveKey.Public(); own != "" {
		return append([]snapshot.PublicKey{own}, o.TrustedKeys...)
	}
	return o.TrustedKeys
}

// repeat calls do regularly until ctx ends.
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

// maxComparisons limits concurrent comparisons: each holds two root file systems.
const maxComparisons = 2

// TemplateMaker creates templates from the changes in sandboxes, and compares snapshots.
type TemplateMaker interface {
	// Capture creates a template from a base and a tar of changes, and fills in t.
	Capture(ctx context.Context, t, base *store.Template, changes string) error
	// Compare lists at most limit files that differ between two snapshots, each given as a base
	// and a tar of changes.
	Compare(ctx context.Context, sinceBase *store.Template, since string, nowBase *store.Template, now string, limit int) (*bothy.SnapshotChanges, error)
	// HoldsSnapshot returns the template that needs a snapshot, or nil.
	HoldsSnapshot(id string) (*store.Template, error)
}
