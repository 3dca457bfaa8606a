package pretend

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/rest"
	"github.com/bothy-dev/bothy/audit"
	blobdir "github.com/bothy-dev/bothy/blob/dir"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/engine/fake/folder"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/lifecycle/engines"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/template"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// Server has the services of a real server, over an engine whose sandboxes are folders of this
// host and isolate nothing. Only what needs a network or other hosts is pretended: builds of
// templates, registries, and a cluster. It needs no root.
type Server struct {
	Host      *fake.Host
	Store     *sqlite.Store
	Lifecycle *lifecycle.Service
	templates *template.Library
	image     string // an empty one

	tokens   *access.Tokens
	projects *access.Projects
	audit    *audit.Log
	meter    *metering.Meter
	undo     cleanup.Stack
}

// open opens the server of a folder, with one template. Its keys are those that were given to
// addKey.
func open(ctx context.Context, dir string) (_ *Server, err error) {
	s := &Server{Host: &fake.Host{}, image: filepath.Join(dir, "image")}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, part := range []func(context.Context, string) error{s.openStore, s.openTemplates, s.openLifecycle} {
		if err := part(ctx, dir); err != nil {
			return nil, err
		}
	}
	_, err = s.addTemplate(bothy.DefaultTemplate)
	return s, err
}

// Close ends the server with its sandboxes.
func (s *Server) Close() { s.undo.Run() }

func (s *Server) openStore(ctx context.Context, dir string) (err error) {
	if s.Store, err = sqlite.Open(ctx, filepath.Join(dir, "bothy.db")); err != nil {
		return err
	}
	s.undo.Add(func() { s.Store.Close() })
	if s.audit, err = audit.Open(ctx, s.Store, audit.Options{Log: quiet}); err != nil {
		return err
	}
	s.undo.Add(func() { s.audit.Close() })
	if s.projects, err = access.NewProjects(ctx, s.Store, time.Now); err != nil {
		return err
	}
	s.tokens = access.New(s.Store, access.WithProjects(s.projects), access.WithLog(quiet))
	s.meter, err = metering.New(ctx, metering.Options{
		Store: s.Store, Sandbox: s.Store.Sandbox, Snapshots: s.Store.AllSnapshots, Rates: bothy.Rates(config.Default().Rates), Every: 200 * time.Millisecond, Log: quiet,
		Templates: func(context.Context) ([]*store.Template, error) { return s.templates.All() },
		Project: func(ctx context.Context, id string) error {
			_, err := s.Store.Project(ctx, id)
			return err
		},
	})
	if err == nil {
		s.projects.UseBudgets(s.meter)
	}
	return err
}

// quiet is the log of everything.
var quiet = slog.New(slog.DiscardHandler)

func (s *Server) openTemplates(_ context.Context, dir string) error {
	s.templates = template.NewLibrary(filepath.Join(dir, "templates"), template.Options{})
	if err := os.MkdirAll(filepath.Join(dir, "sandboxes"), 0o755); err != nil {
		return err
	}
	return filetree.New(time.Now()).Write(s.image, filetree.WriteOptions{})
}

func (s *Server) openLifecycle(ctx context.Context, dir string) error {
	secrets, err := vault.Open(filepath.Join(dir, "secrets.key"))
	if err != nil {
		return err
	}
	blobs, err := blobdir.Open(filepath.Join(dir, "snapshots"))
	if err != nil {
		return err
	}
	s.Host.Boot = folder.Boot(filepath.Join(dir, "sandboxes"))
	s.Lifecycle = lifecycle.New(lifecycle.Options{
		Store: s.Store, Plans: s.projects, Meter: s.meter, Templates: s.templates, TemplateMaker: s.templates, TemplatesUsed: s.templates.UsedBy,
		Blobs: blobs, Engines: map[string]bothy.Engine{fake.Name: fake.New(s.Host, "build-1")}, Engine: fake.Name, Auto: []engines.Choice{{Engine: fake.Name}}, GuestImage: s.image,
		NewGateway: func(id string, c bothy.NetDevice) (bothy.Gateway, error) {
			return gateway.New(c, gateway.Options{Log: quiet, SecretSeed: secrets.Derive("gateway of " + id)})
		},
		CheckNetwork: func(n bothy.Network) error { return gateway.CheckPolicy(n, nil) }, CheckSecrets: gateway.CheckSecrets,
		NewGuest: func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return &folder.Guest{Host: s.Host, Guest: client.Guest{Client: client.New(dial, key), Log: quiet}}
		},
		Vault: secrets, ArchiveKey: snapshot.NewKey(secrets.Derive("snapshot archives")), Log: quiet,
	})
	s.undo.Add(s.endAll)
	if _, err := s.Lifecycle.Recover(ctx); err != nil {
		return err
	}
	s.runMeter()
	return nil
}

// runMeter meters until the server closes.
func (s *Server) runMeter() {
	s.meter.Serve(s.Lifecycle)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.meter.Run(ctx)
	}()
	s.undo.Add(func() {
		stop()
		<-done
		_ = s.meter.Close(context.Background())
	})
}

// endAll ends the sandboxes with the server, as no other one would find their machines.
func (s *Server) endAll() {
	s.Lifecycle.Close()
	for _, id := range s.Host.IDs() {
		_ = s.Host.Machine(id).Destroy(context.Background())
	}
}

// addKey makes a key of a project, which the caller chooses.
func (s *Server) addKey(ctx context.Context, key string, t bothy.Token) error {
	return s.Store.PutToken(ctx, &store.Token{Token: t, Hash: access.Hash(key)})
}

// addTemplate makes a template of no files.
func (s *Server) addTemplate(name string) (*bothy.Template, error) {
	t := &store.Template{Template: bothy.Template{
		Version: bothy.ManifestVersion, Name: name, Description: "a pretended template", CreatedAt: time.Now().UTC(), Source: "pretend:" + name,
	}, Origin: &bothy.TemplateOrigin{Kind: bothy.FromImage, Parameters: map[string]any{"name": name}}}
	err := s.templates.Adopt(context.Background(), t, s.image)
	return &t.Template, err
}

// services are what a real server has.
func (s *Server) services() api.Services {
	l := s.Lifecycle
	t := &library{Library: s.templates, Made: s.addTemplate}
	return api.Services{Services: rest.Services{
		Tokens: s.tokens, Sandboxes: l, Exec: l, Files: l.Files(), Templates: t, Capturer: l, Builder: &apitest.Builder{Made: t.made},
		Snapshots: l, Code: l, Events: l, Network: l, Metrics: measured{l}, Ports: l, Links: access.NewLinks(s.Store, s.tokens, l),
		Mover: l, Logs: l, Limits: l, Usage: s.meter, Projects: s.projects, Audit: s.audit, Host: &apitest.Host{}, Cluster: &apitest.Cluster{},
	}, Recorder: s.audit, Answers: s.Store, Log: quiet}
}

// measured measures all sandboxes, twice, before it tells what was measured.
type measured struct{ *lifecycle.Service }

func (m measured) measure(ctx context.Context) *lifecycle.Service {
	m.MeasureAll(ctx)
	m.MeasureAll(ctx)
	return m.Service
}

// MetricsHistory implements bothy.MetricsService.
func (m measured) MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*bothy.Metrics, error) {
	return m.measure(ctx).MetricsHistory(ctx, id, from, to)
}

// LatestMetrics implements bothy.MetricsService.
func (m measured) LatestMetrics(ctx context.Context) ([]*bothy.SandboxMetrics, error) {
	return m.measure(ctx).LatestMetrics(ctx)
}
