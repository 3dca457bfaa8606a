package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/bothy-dev/bothy/client"
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

// parts is the server: what there is, introduced to each other. This is the
// one place that knows which technology stands behind which interface.
type parts struct {
	config    config.Config
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

func openParts(ctx context.Context, c config.Config, log *slog.Logger) (_ *parts, err error) {
	p := &parts{config: c, log: log}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := p.openHome(); err != nil {
		return nil, err
	}
	binaries, err := p.openBuilds()
	if err != nil {
		return nil, err
	}
	if p.store, err = sqlite.Open(ctx, filepath.Join(c.Home, "bothy.db"), sqlite.WithAnswerBounds(p.answerBounds())); err != nil {
		return nil, err
	}
	p.undo.Add(func() { p.store.Close() })
	// Ended after the audit, so that the mark is beyond its last record.
	if err := p.watchMark(ctx); err != nil {
		return nil, err
	}
	if err := p.openAudit(ctx); err != nil {
		return nil, err
	}
	if p.blobs, err = blobdir.Open(filepath.Join(c.Home, "snapshots")); err != nil {
		return nil, err
	}
	if p.golden, err = blobdir.Open(filepath.Join(c.Home, "golden")); err != nil {
		return nil, err
	}
	if p.vault, err = vault.Open(filepath.Join(c.Home, "secrets.key")); err != nil {
		return nil, err
	}
	if p.projects, err = access.NewProjects(ctx, p.store, time.Now); err != nil {
		return nil, err
	}
	p.tokens = access.New(p.store, access.WithLog(log), access.WithProjects(p.projects))
	p.templates = template.NewLibrary(c.Templates, template.Options{InUse: p.templateInUse})
	if err := p.openEngine(binaries); err != nil {
		return nil, err
	}
	p.metrics = telemetry.New(version, p.census)
	if err := p.openMeter(ctx); err != nil {
		return nil, err
	}
	if err := p.openLifecycle(ctx, binaries); err != nil {
		return nil, err
	}
	p.inflight = p.openInflight()
	door, err := p.doorConfig()
	if err != nil {
		return nil, err
	}
	p.api = api.New(withKeys(api.Services{
		Tokens: p.tokens, Sandboxes: p.lifecycle, Exec: p.lifecycle, Files: p.lifecycle.Files(),
		Templates: p.templates, Snapshots: p.lifecycle, Code: p.lifecycle, Events: p.lifecycle, Network: p.lifecycle,
		Metrics: p.lifecycle, Ports: p.lifecycle, Links: access.NewLinks(p.store, p.tokens, p.lifecycle),
		Mover: p.lifecycle, Logs: p.lifecycle, Limits: p.lifecycle, Usage: p.meter, Projects: p.projects,
		Audit: p.audit, Recorder: p.audit, Answers: p.store, Inflight: p.inflight, Log: log,
	}), door)
	p.runMeter()
	p.openMCP()
	p.openE2B()
	return p, p.openMetrics()
}

func (p *parts) close() { p.undo.Run() }

// openHome makes the folder of the server's state and takes it for itself. The
// sentries, which are nobody, must be able to pass through it.
func (p *parts) openHome() error {
	if err := os.MkdirAll(p.config.Home, 0o711); err != nil {
		return err
	}
	if err := os.Chmod(p.config.Home, 0o711); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(p.config.Home, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return bothy.Errorf(bothy.CodeConflict, "another server uses %s", p.config.Home).
			WithHint("Stop it with `bothy down`, or give this one another BOTHY_HOME.").Because(err)
	}
	p.undo.Add(func() { lock.Close() })
	return nil
}

// openAudit continues the record of who did what. It is closed when nothing is
// left that would be recorded, and before the store.
func (p *parts) openAudit(ctx context.Context) (err error) {
	p.audit, err = audit.Open(ctx, p.store, audit.Options{
		Keep: time.Duration(p.config.Audit.KeepDays) * 24 * time.Hour, NoCommands: !p.config.Audit.Commands, Log: p.log,
	})
	if err == nil {
		p.undo.Add(func() {
			if err := p.audit.Close(); err != nil {
				p.log.Error("the audit is not whole", "error", err)
			}
		})
	}
	return err
}

// doorConfig is how the REST door listens.
func (p *parts) doorConfig() (c api.Config, err error) {
	c = api.Config{
		Listen: p.config.Listen, AllowedHosts: p.config.AllowedHosts, Version: version, AuditReads: p.config.Audit.Reads,
		Observe: p.metrics.Request, Problems: p.problems, LinkKey: p.vault.Derive("links"), LinkDomain: p.config.LinkDomain,
		TrustedProxies: p.config.TrustedProxies,
		Grace:          time.Duration(p.config.ShutdownSeconds) * time.Second,
	}
	if c.Grace == 0 {
		c.Grace = -1
	}
	if p.config.E2B.Enabled && p.config.LinkDomain != "localhost" {
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), "api."+p.config.LinkDomain)
	}
	c.Connections, c.ConnectionsPerAddress = p.connections()
	t := p.config.TLS
	switch {
	case t.CertFile != "":
		p.certs, err = certs.OpenFiles(t.CertFile, t.KeyFile, p.log)
	case len(t.ACME.Domains) > 0:
		a := t.ACME
		p.certs, err = certs.OpenACME(certs.ACMEOptions{
			Domains: a.Domains, Email: a.Email, DirectoryURL: a.DirectoryURL, CAFile: a.CAFile, Dir: filepath.Join(p.config.Home, "certs"),
			HTTPPort: a.HTTPPort, TLSPort: a.TLSPort, Log: p.log,
		})
	default:
		return c, nil
	}
	if err != nil {
		return c, err
	}
	p.undo.Add(func() { p.certs.Close() })
	c.TLS = p.certs.Config()
	if names := p.certs.Names(); len(names) > 0 {
		c.Name = names[0]
		c.AllowedHosts = append(slices.Clone(c.AllowedHosts), names...)
	}
	return c, nil
}

func (p *parts) openEngine(b embedded.Paths) (err error) {
	ids, err := uid.Parse(p.config.Engine.UIDs)
	if err != nil {
		return err
	}
	if p.uids, err = uid.Open(ids); err != nil {
		return err
	}
	p.engine, err = gvisor.New(gvisor.Options{
		Dir: filepath.Join(p.config.Home, "machines"), Sentry: b.Sentry, Guest: b.GuestImage,
		CgroupParent: "bothy-" + shortHash(p.config.Home), UIDs: p.uids, Builds: p.builds, Log: p.log,
	})
	if err == nil {
		p.undo.Add(func() { p.engine.Close() })
	}
	return err
}

func (p *parts) openLifecycle(ctx context.Context, b embedded.Paths) error {
	engines := map[string]bothy.Engine{gvisor.Name: p.engine}
	p.undo.Add(p.closeMicrovm)
	if p.config.Engine.Default == microvm.Name {
		e, err := p.openMicrovm(ctx, b)
		if err != nil {
			return err
		}
		engines[microvm.Name] = e
	}
	cas, err := p.config.TrustedCAs()
	if err != nil {
		return err
	}
	trusted, err := trustedKeys(p.config.Snapshots.TrustedKeys)
	if err != nil {
		return err
	}
	gateways, err := p.gatewayOptions(cas)
	if err != nil {
		return err
	}
	journals, err := gateway.OpenJournals(filepath.Join(p.config.Home, "network"))
	if err != nil {
		return err
	}
	p.lifecycle = lifecycle.New(withTolls(lifecycle.Options{
		Store:     p.store,
		Plans:     p.projects,
		Meter:     p.meter,
		Observe:   p.metrics.Event,
		Templates: p.templates,
		Blobs:     p.blobs,
		Engines:   engines,
		Openers: map[string]lifecycle.Opener{
			microvm.Name: func(ctx context.Context) (bothy.Engine, error) { return p.openMicrovm(ctx, b) },
		},
		Builds:     p.builds,
		Engine:     p.config.Engine.Default,
		Auto:       autoPolicies[p.config.Engine.Auto],
		GuestImage: b.GuestImage,
		NewGateway: func(id string, c bothy.Cable) (bothy.Gateway, error) {
			o := gateways
			o.Log = p.log.With("sandbox", id)
			o.SecretSeed = p.vault.Derive("gateway of " + id)
			o.Journal = journals.Open(id)
			return gateway.New(c, o)
		},
		CheckNetwork: func(n bothy.Network) error { return gateway.CheckPolicy(n, nil) },
		CheckSecrets: gateway.CheckSecrets,
		NetworkLogs:  journals,
		NewGuest: func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return guest{guestclient.New(dial, key), p.log}
		},
		Vault:    p.vault,
		CABundle: cas,
		Pool: lifecycle.PoolOptions{
			Golden: p.golden, GoldenMax: p.config.Pool.GoldenMax, Spares: p.config.Pool.Spares,
			Ready: p.config.Pool.Ready, ReadyMax: p.config.Pool.ReadyMax, Templates: p.config.Pool.Templates,
			MinFreeMemoryMB: p.config.Pool.MinFreeMemoryMB,
		},
		MaxSandboxes: p.config.Sandboxes.Max,
		Register:     registerFolder(p.config),
		Doubtful:     p.missing > 0,
		DiskFull:     func() bool { return freeBytes(p.config.Home) < fullBelow },
		Retention: lifecycle.Retention{
			PerSandbox:   p.config.Snapshots.KeepPerSandbox,
			For:          time.Duration(p.config.Snapshots.KeepHours) * time.Hour,
			ProjectBytes: p.config.Snapshots.ProjectQuotaMB << 20,
			MinFreeDisk:  p.config.Snapshots.MinFreeDiskMB << 20,
		},
		ArchiveKey:      snapshot.NewKey(p.vault.Derive("snapshot archives")),
		TrustedKeys:     trusted,
		MinFreeMemoryMB: p.config.Sandboxes.MinFreeMemoryMB,
		AdmissionWait:   time.Duration(p.config.Sandboxes.WaitSeconds) * time.Second,
		StartsAtOnce:    p.config.Sandboxes.StartsAtOnce,
		Log:             p.log,
	}))
	background, stop := context.WithCancel(context.Background())
	p.undo.Add(func() { p.lifecycle.Close() })
	p.undo.Add(stop)
	keep := time.Duration(p.config.Sandboxes.KeepEndedHours) * time.Hour
	go p.lifecycle.Janitor(background, time.Hour, keep)
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

func (p *parts) gatewayOptions(cas string) (gateway.Options, error) {
	o := gateway.Options{Allow: p.config.Network.Allow, Forbid: p.config.Network.Forbid, GuestMAC: bothy.GuestMAC[:]}
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
func (p *parts) templateInUse(ctx context.Context, digest string) (bool, error) {
	open, err := p.store.SandboxesInState(ctx, bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused, bothy.StateResuming)
	if err != nil {
		return true, err
	}
	for _, sb := range open {
		if sb.TemplateDigest == digest {
			return true, nil
		}
	}
	names, err := p.blobs.List(ctx)
	if err != nil {
		return true, err
	}
	for _, name := range names {
		dir, release, err := p.blobs.Open(ctx, name)
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

// bootstrap writes a first admin key to path, unless it holds a valid one.
func (p *parts) bootstrap(ctx context.Context, path string) error {
	var c client.Credentials
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := false
	if err == nil && json.Unmarshal(b, &c) == nil {
		_, err := p.tokens.Authenticate(ctx, c.APIKey)
		known = err == nil
	}
	if known && c.URL == p.api.URL() {
		return nil
	}
	if !known {
		t, err := p.tokens.CreateFirst(ctx, "first key")
		if err != nil {
			return fmt.Errorf("make the first key: %w", err)
		}
		c.APIKey = t.Key
	}
	c.URL = p.api.URL()
	if b, err = json.Marshal(c); err != nil {
		return err
	}
	return writeSecret(path, append(b, '\n'))
}

// writeSecret replaces a file that only root may read.
func writeSecret(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
