package api

import (
	"cmp"
	"reflect"
	"time"

	"github.com/bothy-dev/bothy"
)

// RESTServices are what the operations call. A nil service has no routes.
type RESTServices struct {
	// Tokens authenticates every request and is the one that must be there.
	Tokens    bothy.TokenService
	Sandboxes bothy.SandboxService
	Exec      bothy.ExecService
	Code      bothy.CodeService
	Files     bothy.FileService
	Templates bothy.TemplateService
	Snapshots bothy.SnapshotService
	Events    bothy.EventService
	Network   bothy.NetworkService
	Metrics   bothy.MetricsService
	Ports     bothy.PortService
	Links     bothy.LinkService
	Mover     bothy.SnapshotMover
	Logs      bothy.LogService
	Limits    bothy.LimitsService
	Projects  bothy.ProjectService
	Usage     bothy.UsageService
	Audit     bothy.AuditService
}

// Times are how long the handlers wait; each has a default.
type Times struct {
	// FirstBeat is when a quiet stream first shows that it lives, and Beats how often after that.
	FirstBeat, Beats time.Duration
	// ArchiveSilence is how long the peer of an archive may do nothing.
	ArchiveSilence time.Duration
	// Rejoin is how long a terminal whose connection broke can be joined again.
	Rejoin time.Duration
}

// handlers answer the operations.
type handlers struct {
	*Chain
	registry *Registry
	services RESTServices
	version  string

	beats          heartbeat
	archiveSilence time.Duration
	rejoinTime     time.Duration
	// detached are terminals that may be joined again, for rejoinTime.
	detached detached
}

func registerHandlers(registry *Registry, chain *Chain, services RESTServices, times Times, version string) {
	s := &handlers{
		Chain: chain, registry: registry, services: services, version: version,
		beats:          heartbeat{cmp.Or(times.FirstBeat, 200*time.Millisecond), cmp.Or(times.Beats, 15*time.Second)},
		archiveSilence: times.ArchiveSilence,
		rejoinTime:     cmp.Or(times.Rejoin, rejoinTime),
	}
	s.registerSandboxes()
	s.registerExec()
	s.registerProcesses()
	s.registerTerminal()
	s.registerCode()
	s.registerFiles()
	s.registerSnapshots()
	s.registerTemplates()
	s.registerEvents()
	s.registerNetwork()
	s.registerMetrics()
	s.registerLogs()
	s.registerMover()
	s.registerTokens()
	s.registerProjects()
	s.registerUsage()
	s.registerAudit()
	s.registerSession()
	documentUploads(registry.OpenAPI().Paths, registry.schema(reflect.TypeFor[items[bothy.FileInfo]]()))
}
