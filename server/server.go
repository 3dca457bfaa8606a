// Package server is the composition root: it opens the components of a server and connects
// them. It is the only package that knows which technology implements which interface. The life
// of a Server is New, Listen, Serve, Close; the command line and tests use it.
package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/access/certs"
	"github.com/bothy-dev/bothy/access/session"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/agents"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/inflight"
	"github.com/bothy-dev/bothy/api/rest"
	"github.com/bothy-dev/bothy/audit"
	"github.com/bothy-dev/bothy/blob"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/depot"
	"github.com/bothy-dev/bothy/e2b"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/uid"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/telemetry"
	"github.com/bothy-dev/bothy/template"
	"github.com/bothy-dev/bothy/template/build"
	"github.com/bothy-dev/bothy/webhook"
)

// Server holds everything that runs in one server process.
type Server struct {
	config    config.Config
	version   string
	log       *slog.Logger
	store     database
	tokens    *access.Tokens
	projects  *access.Projects
	audit     *audit.Log
	certs     certs.Source // nil without TLS
	metrics   *telemetry.Metrics
	meter     *metering.Meter
	webhooks  *webhook.Service
	agents    *agents.Service
	templates *template.Library
	builder   *build.Builder
	blobs     blob.Store
	bucket    *s3.Bucket // nil without object storage
	golden    blob.Store
	vault     *vault.Vault
	builds    *builds.Store
	uids      *uid.Pool
	engine    *gvisor.Engine
	microvm   atomic.Pointer[microvm.Engine] // nil until it is needed
	lifecycle *lifecycle.Service
	inflight  *inflight.Limits
	api       *api.Server

	membership membership
	cluster    cluster.Service // manages the hosts
	depot      *depot.Depot
	logins     *session.Store
	e2b        *e2b.Door // nil if E2B's clients are not served
	// onDuty is set while this host does the work that one host does for all.
	onDuty atomic.Bool

	// storeLost is closed when another server has taken the database; nil if none can.
	storeLost <-chan struct{}
	// givenUp receives why this host must stop once the other hosts have given it up.
	givenUp chan error

	// missing counts the audit records that the database has lost.
	missing atomic.Int64
	// damage is set if the database's files are damaged, and closedSecrets says which secrets
	// cannot be opened, if any.
	damage        atomic.Bool
	closedSecrets string

	undo cleanup.Stack
}

// Options are what a server needs besides its settings.
type Options struct {
	// Version is the version that the server reports.
	Version string
	Log     *slog.Logger
}

// New opens the components of a server, and locks its home and its templates until Close. On an error everything
// is closed again.
func New(ctx context.Context, c config.Config, o Options) (_ *Server, err error) {
	s := &Server{config: c, version: o.Version, log: o.Log}
	s.depot = &depot.Depot{
		Host: c.Cluster.Name, Home: c.Home, Folder: c.Templates, Log: o.Log, OnDuty: s.onDuty.Load, Doubtful: s.doubtful,
		MinFree: c.Snapshots.MinFreeDiskMB << 20, CacheBytes: c.Snapshots.CacheMB << 20, Grace: time.Duration(c.Snapshots.GraceHours) * time.Hour,
		NeededBuilds: func(ctx context.Context) (map[string]int, error) { return s.lifecycle.NeededBuilds(ctx) },
	}
	s.membership = alone{Server: s} // until the database is open
	defer func() {
		if err != nil {
			s.membership.notStarted(err)
			s.Close()
		}
	}()
	if err := checkProcessor(c); err != nil {
		return nil, err
	}
	if err := s.openHome(); err != nil {
		return nil, err
	}
	free, err := template.Own(ctx, c.Templates, c.Home)
	if err != nil {
		return nil, err
	}
	s.undo.Add(free)
	binaries, err := s.openBuilds()
	if err != nil {
		return nil, err
	}
	if err := s.openStore(ctx); err != nil {
		return nil, err
	}
	s.depot.Store = s.store
	// Opened before the audit, so that it closes after it and the mark includes its last record.
	if err := s.watchMark(ctx); err != nil {
		return nil, err
	}
	if err := s.openAudit(ctx); err != nil {
		return nil, err
	}
	if err := s.openVault(ctx); err != nil {
		return nil, err
	}
	if err := s.membership.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.openBlobs(ctx); err != nil {
		return nil, err
	}
	if s.golden, err = blobdir.Open(filepath.Join(c.Home, "golden")); err != nil {
		return nil, err
	}
	if s.projects, err = access.NewProjects(ctx, s.store, time.Now); err != nil {
		return nil, err
	}
	s.tokens = access.New(s.store, access.WithLog(s.log), access.WithProjects(s.projects), access.WithShared(s.membership.Shared()))
	if err := confined.Try(ctx); err != nil {
		s.log.Warn("this host does not let the server confine what parses images, layers and build contexts: the server parses them itself", "error", err)
	}
	registries := template.Registries(c.Registries)
	if err := registries.Check(); err != nil {
		return nil, err
	}
	s.templates = template.NewLibrary(c.Templates, template.Options{
		Registries: registries, Version: s.version, MinFreeDisk: c.Snapshots.MinFreeDiskMB << 20,
		Shared: s.membership.Templates(), InUse: s.depot.ImageInUse, Quota: s.templateQuota, Forget: s.forgetMemory, Transport: gateway.Transport(c.Network.Allow, c.Network.Forbid),
	})
	s.depot.Blobs, s.depot.Bucket, s.depot.Golden, s.depot.Builds, s.depot.Library = s.blobs, s.bucket, s.golden, s.builds, s.templates
	if err := s.openEngine(binaries); err != nil {
		return nil, err
	}
	s.metrics = telemetry.New(s.version, s.census)
	s.metrics.Losses(s.losses)
	if s.bucket != nil {
		s.metrics.ObjectStorage(s.objectStorage)
	}
	if err := s.openMeter(ctx); err != nil {
		return nil, err
	}
	if err := s.openLifecycle(ctx, binaries); err != nil {
		return nil, err
	}
	s.openWebhooks()
	s.openAgents()
	s.inflight = s.openInflight()
	if err := s.openBuilder(); err != nil {
		return nil, err
	}
	listens, err := s.apiConfig()
	if err != nil {
		return nil, err
	}
	services, err := s.withLogins(ctx, withKeys(api.Services{Services: rest.Services{
		Tokens: s.tokens, Sandboxes: s.lifecycle, Exec: s.lifecycle, Files: s.lifecycle.Files(),
		Templates: s.templates, Capturer: s.lifecycle, Builder: s.builder, Snapshots: s.lifecycle, Code: s.lifecycle, Events: s.lifecycle, Network: s.lifecycle,
		Metrics: s.lifecycle, Ports: s.lifecycle, SSH: s.lifecycle, Links: access.NewLinks(s.store, s.tokens, s.lifecycle), Webhooks: s.webhooks, Agents: s.agents,
		Mover: s.lifecycle, Logs: s.lifecycle, Limits: s.lifecycle, Usage: s.meter, Projects: s.projects,
		Audit: s.audit, Host: &host{server: s}, Cluster: &s.cluster,
	}, Recorder: s.audit, Answers: s.store, Inflight: s.inflight, Log: s.log}))
	if err != nil {
		return nil, err
	}
	s.api = api.New(services, listens)
	s.runMeter()
	if err := s.membership.open(ctx); err != nil {
		return nil, err
	}
	s.checkStore()
	s.openMCP()
	s.openE2B()
	s.openOpenAI()
	s.openConsole()
	return s, s.openMetrics()
}

// Close closes the components in reverse order. Sandboxes keep running.
func (s *Server) Close() { s.undo.Run() }

// openHome creates the folder of the server's state and locks it. Its mode lets the sentries,
// which run as nobody, pass through.
func (s *Server) openHome() error {
	if err := os.MkdirAll(s.config.Home, 0o711); err != nil {
		return err
	}
	if err := os.Chmod(s.config.Home, 0o711); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.config.Home, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return bothy.Errorf(bothy.CodeConflict, "another server uses %s", s.config.Home).
			WithHint("Stop it with `bothy down`, or give this one another BOTHY_HOME.").Because(err)
	}
	s.undo.Add(func() { lock.Close() })
	return nil
}

// openAudit opens the audit log. It is closed after everything that writes to it, and before
// the store.
func (s *Server) openAudit(ctx context.Context) (err error) {
	s.audit, err = audit.Open(ctx, s.store, audit.Options{
		Keep: time.Duration(s.config.Audit.KeepDays) * 24 * time.Hour, NoCommands: !s.config.Audit.Commands, Log: s.log,
	})
	if err == nil {
		s.undo.Add(func() {
			if err := s.audit.Close(); err != nil {
				s.log.Error("cannot write the last audit records", "error", err)
			}
		})
	}
	return err
}

// templateQuota returns how many bytes a project's templates may take up; 0 means no limit.
func (s *Server) templateQuota(ctx context.Context, project string) (int64, error) {
	p, err := s.projects.Plan(ctx, project)
	if err != nil || p.TemplatesMB == nil {
		return 0, err
	}
	return max(*p.TemplatesMB<<20, 1), nil // a plan of 0 MB allows none, and must not become "no limit"
}

// forgetMemory deletes the memory snapshot of a removed template.
func (s *Server) forgetMemory(ctx context.Context, project, snapshotID string) {
	owner := &bothy.Caller{ProjectID: project, TokenID: "server", Scopes: bothy.AllScopes}
	err := s.lifecycle.DeleteSnapshot(bothy.WithCaller(context.WithoutCancel(ctx), owner), snapshotID)
	if err != nil && bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		s.log.Warn("cannot delete the memory snapshot of a removed template", "snapshot", snapshotID, "error", err)
	}
}

// collectTemplates deletes unused images now and every hour.
func (s *Server) collectTemplates(ctx context.Context) {
	every := time.NewTicker(time.Hour)
	defer every.Stop()
	for {
		if err := s.templates.Collect(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot delete every unused image", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
