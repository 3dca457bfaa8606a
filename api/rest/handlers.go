// Package rest holds the operations of the API, one file for each group. Each decodes its input,
// calls a service and encodes the answer; the middleware does the rest.
package rest

import (
	"cmp"
	"reflect"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// Services are the services behind the operations. A nil service has no routes.
type Services struct {
	// Tokens authenticates every request, and is required.
	Tokens    bothy.TokenService
	Sandboxes bothy.SandboxService
	Exec      bothy.ExecService
	Code      bothy.CodeService
	Files     bothy.FileService
	Templates bothy.TemplateService
	Builder   bothy.TemplateBuilder
	Capturer  bothy.TemplateCapturer
	Snapshots bothy.SnapshotService
	Events    bothy.EventService
	Network   bothy.NetworkService
	Metrics   bothy.MetricsService
	Ports     bothy.PortService
	SSH       bothy.SSHService
	Links     bothy.LinkService
	Webhooks  bothy.WebhookService
	Agents    bothy.AgentService
	Mover     bothy.SnapshotMover
	Logs      bothy.LogService
	Limits    bothy.LimitsService
	Projects  bothy.ProjectService
	Usage     bothy.UsageService
	Audit     bothy.AuditService
	Host      bothy.HostService
	Cluster   bothy.ClusterService
}

// Times are the handlers' waiting times; each has a default.
type Times struct {
	// FirstBeat is when a quiet stream first shows that it lives, and Beats how often after that.
	FirstBeat, Beats time.Duration
	// ArchiveSilence is how long the peer of an archive may be idle.
	ArchiveSilence time.Duration
	// Rejoin is how long a terminal whose connection broke can be joined again.
	Rejoin time.Duration
}

// handlers answer the operations.
type handlers struct {
	*middleware.Chain
	registry *openapi.Registry
	services Services
	version  string

	beats          heartbeat
	archiveSilence time.Duration
	rejoinTime     time.Duration
	// detached are terminals that may be joined again, for rejoinTime.
	detached detached
}

func Register(registry *openapi.Registry, chain *middleware.Chain, services Services, times Times, version string) {
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
	s.registerCapture()
	s.registerBuilds()
	s.registerEvents()
	s.registerNetwork()
	s.registerMetrics()
	s.registerLogs()
	s.registerMover()
	s.registerTokens()
	s.registerWebhooks()
	s.registerAgents()
	s.registerProjects()
	s.registerUsage()
	s.registerAudit()
	s.registerHost()
	s.registerHosts()
	s.registerSession()
	documentUploads(registry.OpenAPI().Paths, registry.Schema(reflect.TypeFor[openapi.Items[bothy.FileInfo]]()))
}
