// Package server is the composition: it opens the parts of a server and introduces them
// to each other. It is the one place that knows which technology stands behind which
// interface. The life of a Server is New, Listen, Serve, Close; the command line and
// tests use it.
package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/audit"
	"github.com/bothy-dev/bothy/blob"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/certs"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/uid"
	"github.com/bothy-dev/bothy/gateway"
	guestclient "github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/inflight"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/telemetry"
	"github.com/bothy-dev/bothy/template"
	"github.com/bothy-dev/bothy/vault"
)

// Server is everything that runs in one server process.
type Server struct {
	config    config.Config
	version   string
	log       *slog.Logger
	store     *sqlite.Store
	tokens    *access.Tokens
	projects  *access.Projects
	audit     *audit.Log
	certs     certs.Source // nil without TLS
	metrics   *telemetry.Metrics
	meter     *metering.Meter
	templates *template.Library
	blobs     blob.Store
	golden    blob.Store
	vault     *vault.Vault
	builds    *builds.Store
	uids      *uid.Pool
	engine    *gvisor.Engine
	microvm   atomic.Pointer[microvm.Engine] // once it is needed
	lifecycle *lifecycle.Service
	inflight  *inflight.Limits
	api       *api.Server

	// missing counts the records that the database had and lacks.
	missing int64

	undo cleanup.Stack
}

// Options are what a server takes besides its settings.
type Options struct {
	// Version is what the server says of itself.
	Version string
	Log     *slog.Logger
}

// New opens what a server is made of, and takes its home for itself until Close. On an
// error nothing stays open.
func New(ctx context.Context, c config.Config, o Options) (_ *Server, err error) {
	s := &Server{config: c, version: o.Version, log: o.Log}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.openHome(); err != nil {
		return nil, err
	}
	binaries, err := s.openBuilds()
	if err != nil {
		return nil, err
	}
	if s.store, err = sqlite.Open(ctx, filepath.Join(c.Home, "bothy.db"), sqlite.WithAnswerBounds(s.answerBounds())); err != nil {
		return nil, err
	}
	s.undo.Add(func() { s.store.Close() })
	// Ended after the audit, so that the mark is beyond its last record.
	if err := s.watchMark(ctx); err != nil {
		return nil, err
	}
	if err := s.openAudit(ctx); err != nil {
		return nil, err
	}
	if s.blobs, err = blobdir.Open(filepath.Join(c.Home, "snapshots")); err != nil {
		return nil, err
	}
	if s.golden, err = blobdir.Open(filepath.Join(c.Home, "golden")); err != nil {
		return nil, err
	}
	if s.vault, err = vault.Open(filepath.Join(c.Home, "secrets.key")); err != nil {
		return nil, err
	}
	if s.projects, err = access.NewProjects(ctx, s.store, time.Now); err != nil {
		return nil, err
	}
	s.tokens = access.New(s.store, access.WithLog(s.log), access.WithProjects(s.projects))
	s.templates = template.NewLibrary(c.Templates, template.Options{InUse: s.templateInUse})
	if err := s.openEngine(binaries); err != nil {
		return nil, err
	}
	s.metrics = telemetry.New(s.version, s.census)
	if err := s.openMeter(ctx); err != nil {
		return nil, err
	}
	if err := s.openLifecycle(ctx, binaries); err != nil {
		return nil, err
	}
	s.inflight = s.openInflight()
	door, err := s.doorConfig()
	if err != nil {
		return nil, err
	}
	services, err := s.withLogins(withKeys(api.Services{
		Tokens: s.tokens, Sandboxes: s.lifecycle, Exec: s.lifecycle, Files: s.lifecycle.Files(),
		Templates: s.templates, Snapshots: s.lifecycle, Code: s.lifecycle, Events: s.lifecycle, Network: s.lifecycle,
		Metrics: s.lifecycle, Ports: s.lifecycle, Links: access.NewLinks(s.store, s.tokens, s.lifecycle),
		Mover: s.lifecycle, Logs: s.lifecycle, Limits: s.lifecycle, Usage: s.meter, Projects: s.projects,
		Audit: s.audit, Recorder: s.audit, Answers: s.store, Inflight: s.inflight, Log: s.log,
	}))
	if err != nil {
		return nil, err
	}
	s.api = api.New(services, door)
	s.runMeter()
	s.openMCP()
	s.openE2B()
	s.openConsole()
	return s, s.openMetrics()
}

// Close ends everything but the sandboxes, in the reverse order.
func (s *Server) Close() { s.undo.Run() }

// openHome makes the folder of the server's state and takes it for itself. The
// sentries, which are nobody, must be able to pass through it.
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

// openAudit continues the record of who did what. It is closed when nothing is
// left that would be recorded, and before the store.
func (s *Server) openAudit(ctx context.Context) (err error) {
	s.audit, err = audit.Open(ctx, s.store, audit.Options{
		Keep: time.Duration(s.config.Audit.KeepDays) * 24 * time.Hour, NoCommands: !s.config.Audit.Commands, Log: s.log,
	})
	if err == nil {
		s.undo.Add(func() {
			if err := s.audit.Close(); err != nil {
				s.log.Error("the audit is not whole", "error", err)
			}
		})
	}
	return err
}

// doorConfig is how the REST door listens.
func (s *Server) doorConfig() (c api.Config, err error) {
	c = api.Config{
		Listen: s.config.Listen, AllowedHosts: s.config.AllowedHosts, Version: s.version, AuditReads: s.config.Audit.Reads,
		Observe: s.metrics.Request, Problems: s.problems, LinkKey: s.vault.Derive("links"), LinkDomain: s.config.LinkDomain,
		TrustedProxies: s.config.TrustedProxies,
		Grace:          time.Duration(s.config.ShutdownSeconds) * time.Second,
	}
	if c.Grace == 0 {
		c.Grace = -1
	}
	if s.config.E2B.Enabled && s.config.LinkDomain != "localhost" {
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), "api."+s.config.LinkDomain)
	}
	c.Connections, c.ConnectionsPerAddress = s.connections()
	t := s.config.TLS
	switch {
	case t.CertFile != "":
		s.certs, err = certs.OpenFiles(t.CertFile, t.KeyFile, s.log)
	case len(t.ACME.Domains) > 0:
		a := t.ACME
		s.certs, err = certs.OpenACME(certs.ACMEOptions{
			Domains: a.Domains, Email: a.Email, DirectoryURL: a.DirectoryURL, CAFile: a.CAFile, Dir: filepath.Join(s.config.Home, "certs"),
			HTTPPort: a.HTTPPort, TLSPort: a.TLSPort, Log: s.log,
		})
	default:
		return c, nil
	}
	if err != nil {
		return c, err
	}
	s.undo.Add(func() { s.certs.Close() })
	c.TLS = s.certs.Config()
	if names := s.certs.Names(); len(names) > 0 {
		c.Name = names[0]
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), names...)
	}
	return c, nil
}

func (s *Server) openEngine(b embedded.Paths) (err error) {
	ids, err := uid.Parse(s.config.Engine.UIDs)
	if err != nil {
		return err
	}
	if s.uids, err = uid.Open(ids); err != nil {
		return err
	}
	s.engine, err = gvisor.New(gvisor.Options{
		Dir: filepath.Join(s.config.Home, "machines"), Sentry: b.Sentry, Guest: b.GuestImage,
		CgroupParent: "bothy-" + shortHash(s.config.Home), UIDs: s.uids, Builds: s.builds, Log: s.log,
	})
	if err == nil {
		s.undo.Add(func() { s.engine.Close() })
	}
	return err
}

func (s *Server) openLifecycle(ctx context.Context, b embedded.Paths) error {
	engines := map[string]bothy.Engine{gvisor.Name: s.engine}
	s.undo.Add(s.closeMicrovm)
	if s.config.Engine.Default == microvm.Name {
		e, err := s.openMicrovm(ctx, b)
		if err != nil {
			return err
		}
		engines[microvm.Name] = e
	}
	cas, err := s.config.TrustedCAs()
	if err != nil {
		return err
	}
	trusted, err := trustedKeys(s.config.Snapshots.TrustedKeys)
	if err != nil {
		return err
	}
	gateways, err := s.gatewayOptions(cas)
	if err != nil {
		return err
	}
	journals, err := gateway.OpenJournals(filepath.Join(s.config.Home, "network"))
	if err != nil {
		return err
	}
	s.lifecycle = lifecycle.New(withMetering(lifecycle.Options{
		Store:     s.store,
		Plans:     s.projects,
		Meter:     s.meter,
		Observe:   s.metrics.Event,
		Templates: s.templates,
		Blobs:     s.blobs,
		Engines:   engines,
		Openers: map[string]lifecycle.Opener{
			microvm.Name: func(ctx context.Context) (bothy.Engine, error) { return s.openMicrovm(ctx, b) },
		},
		Builds:     s.builds,
		Engine:     s.config.Engine.Default,
		Auto:       autoPolicies[s.config.Engine.Auto],
		GuestImage: b.GuestImage,
		NewGateway: func(id string, c bothy.Cable) (bothy.Gateway, error) {
			o := gateways
			o.Log = s.log.With("sandbox", id)
			o.SecretSeed = s.vault.Derive("gateway of " + id)
			o.Journal = journals.Open(id)
			return gateway.New(c, o)
		},
		CheckNetwork: func(n bothy.Network) error { return gateway.CheckPolicy(n, nil) },
		CheckSecrets: gateway.CheckSecrets,
		NetworkLogs:  journals,
		NewGuest: func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return guest{guestclient.New(dial, key), s.log}
		},
		Vault:    s.vault,
		CABundle: cas,
		Pool: lifecycle.PoolOptions{
			Golden: s.golden, GoldenMax: s.config.Pool.GoldenMax, Spares: s.config.Pool.Spares,
			Ready: s.config.Pool.Ready, ReadyMax: s.config.Pool.ReadyMax, Templates: s.config.Pool.Templates,
			MinFreeMemoryMB: s.config.Pool.MinFreeMemoryMB,
		},
		MaxSandboxes: s.config.Sandboxes.Max,
		Register:     RegisterFolder(s.config),
		Doubtful:     s.missing > 0,
		DiskFull:     func() bool { return freeBytes(s.config.Home) < fullBelow },
		Retention: lifecycle.Retention{
			PerSandbox:   s.config.Snapshots.KeepPerSandbox,
			For:          time.Duration(s.config.Snapshots.KeepHours) * time.Hour,
			ProjectBytes: s.config.Snapshots.ProjectQuotaMB << 20,
			MinFreeDisk:  s.config.Snapshots.MinFreeDiskMB << 20,
		},
		ArchiveKey:      snapshot.NewKey(s.vault.Derive("snapshot archives")),
		TrustedKeys:     trusted,
		MinFreeMemoryMB: s.config.Sandboxes.MinFreeMemoryMB,
		AdmissionWait:   time.Duration(s.config.Sandboxes.WaitSeconds) * time.Second,
		StartsAtOnce:    s.config.Sandboxes.StartsAtOnce,
		Log:             s.log,
	}))
	background, stop := context.WithCancel(context.Background())
	s.undo.Add(func() { s.lifecycle.Close() })
	s.undo.Add(stop)
	keep := time.Duration(s.config.Sandboxes.KeepEndedHours) * time.Hour
	go s.lifecycle.Janitor(background, time.Hour, keep)
	return nil
}

// trustedKeys reads the keys of other servers in the settings.
func trustedKeys(texts []string) (keys []snapshot.PublicKey, err error) {
	for _, text := range texts {
		k, err := snapshot.ParsePublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("snapshots.trusted_keys: %w", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (s *Server) gatewayOptions(cas string) (gateway.Options, error) {
	o := gateway.Options{Allow: s.config.Network.Allow, Forbid: s.config.Network.Forbid, GuestMAC: bothy.GuestMAC[:]}
	if cas != "" {
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM([]byte(cas)) {
			return o, errors.New("network.ca_bundle holds no certificate that can be read")
		}
	}
	return o, nil
}

// templateInUse reports whether a sandbox that has not ended, or a snapshot,
// needs an image.
func (s *Server) templateInUse(ctx context.Context, digest string) (bool, error) {
	open, err := s.store.SandboxesInState(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused, bothy.StateResuming)
	if err != nil {
		return true, err
	}
	for _, sb := range open {
		if sb.TemplateDigest == digest {
			return true, nil
		}
	}
	names, err := s.blobs.List(ctx)
	if err != nil {
		return true, err
	}
	for _, name := range names {
		dir, release, err := s.blobs.Open(ctx, name)
		if err != nil {
			continue // just deleted
		}
		m, err := snapshot.Read(dir)
		release()
		if err == nil && m.Sandbox.TemplateDigest == digest {
			return true, nil
		}
	}
	return false, nil
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
