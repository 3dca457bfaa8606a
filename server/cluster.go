package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/mcp"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/telemetry"
)

// refreshEvery is how often it is looked what other hosts have changed: keys, plans and logins.
const refreshEvery = 2 * time.Second

// JoinCluster makes an empty home that of one more host of a cluster, with a token for it, and
// returns the URL of the cluster's database, without its password.
func JoinCluster(ctx context.Context, c config.Config, token string) (string, error) {
	return cluster.Join(ctx, token, c.Home)
}

func leaseTimes(c config.Config) cluster.Times {
	return cluster.Times{Lease: time.Duration(c.Cluster.LeaseSeconds) * time.Second}
}

// openKeeper makes what knows whether this host may go on. It does nothing before runCluster
// but to tell.
func (s *Server) openKeeper() {
	s.given, s.buried = make(chan struct{}), make(chan struct{}, 1)
	s.keeper = cluster.NewKeeper(cluster.KeeperOptions{
		Times: leaseTimes(s.config), Renewed: s.hosts.Renewed, Lost: s.hosts.Lost(), Log: s.log, Counts: &s.counts,
		Suspend: func() { s.lifecycle.Suspend() }, Unsuspend: func() { s.lifecycle.Unsuspend() },
		Abandon: func() { s.lifecycle.Abandon(); close(s.given) },
		Older:   s.hosts.Older, Keep: func() { close(s.given) },
		Buried: func([]store.Burial) {
			select {
			case s.buried <- struct{}{}:
			default: // it is looked already
			}
		},
	})
	s.storeLost = nil // the keeper deals with it
}

// elsewhere counts the sandboxes of a project on other hosts; nil where there are none.
func (s *Server) elsewhere() func(context.Context, string) (int, error) {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.LiveOf
}

// startShared stores sandboxes that begin to run within bounds for all hosts; nil where there
// is only this.
func (s *Server) startShared() func(context.Context, *store.Sandbox, store.StartBounds) error {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.StartSandbox
}

// countsStorage reports whether this host counts snapshots and templates for all.
func (s *Server) countsStorage() func() bool {
	if s.hosts == nil {
		return nil
	}
	return s.onDuty.Load
}

// openCluster makes what leads requests to other hosts.
func (s *Server) openCluster(ctx context.Context) error {
	if s.hosts == nil {
		return nil
	}
	authority, err := cluster.OpenAuthority(ctx, s.hosts, s.vault)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(s.config.Home, "secrets.key"))
	if err != nil {
		return err
	}
	c := s.config.Cluster
	s.cluster.Store = s.hosts
	s.cluster.Invitations = &cluster.Invitations{
		Hosts: s.hosts, Authority: authority, Address: cmp.Or(c.Address, c.Listen), Grant: cluster.Grant{Key: key, Store: withoutPassword(s.config.Store)},
	}
	gate := &cluster.Gate{}
	router := cluster.NewRouter(cluster.RouterOptions{
		Hosts: s.hosts, Authority: authority, Keeper: s.keeper, Gate: gate, Here: s.lifecycle.Here, Full: s.lifecycle.Full,
		Ready: s.readyOf, Template: s.templateAsked, Spread: s.hosts.LiveByHost, Wanted: s.wanted, Memory: s.memoryOf,
		Fetchable: s.fetchable, Claimed: s.lifecycle.Claimed,
		Port: s.api.PortOf, Agents: mcp.Path, Alone: mcp.Alone, Upload: s.uploadProject, HasBuild: s.hasBuild, Fail: s.api.Fail, Log: s.log, Counts: &s.counts,
		Authenticate: func(r *http.Request) (c cluster.Caller, err error) {
			project, token, login, err := s.api.LoggedIn(r)
			if login {
				c = cluster.Caller{Project: project, TokenID: token}
			}
			c.Owner = project
			return c, err
		},
	})
	s.api.SetPeers(router)
	s.trees = cluster.NewTrees(s.hosts, authority, s.openShared)
	s.cluster.Mover = s.newMover(gate, router)
	s.pieces = cluster.Pieces{Router: router, Read: s.readPiece, Max: s3.MaxPiece}
	s.mayTake = router.MayTake
	s.hosts.SetFigures(s.figures)
	s.metrics.Cluster(s.asHost)
	problem, err := cluster.ProcessorProblem(ctx, s.hosts)
	if err != nil {
		return err
	}
	if problem != "" {
		s.log.Warn("the processors of the hosts differ", "problem", problem)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "the address %s (cluster.listen) cannot be listened on", c.Listen).
			WithHint("Stop what listens there, or choose another address.").Because(err)
	}
	s.undo.Add(func() { l.Close() })
	s.peers = tls.NewListener(cluster.Listen(l), authority.Server())
	return nil
}

// uploadProject finds the project of a request that brings files of a build by an address for
// them, as E2B's clients do.
func (s *Server) uploadProject(r *http.Request) string {
	token, ok := strings.CutPrefix(r.URL.Path, "/templates/upload/")
	if !ok || s.e2b == nil {
		return ""
	}
	return s.e2b.UploadProject(token)
}

// hasBuild reports whether a build is known here.
func (s *Server) hasBuild(id string) bool {
	return s.builder.Has(id) || s.e2b != nil && s.e2b.HasBuild(id)
}

// servePeer answers a request that another host passes on, as if it had come here.
func (s *Server) servePeer(w http.ResponseWriter, r *http.Request) {
	p := cluster.PeerFrom(r.Context())
	ctx := middleware.WithPeer(r.Context(), middleware.Peer{Remote: p.Remote, Scheme: p.Scheme, Project: p.Project, TokenID: p.TokenID})
	if p.Alone {
		ctx = mcp.Alone(ctx)
	}
	r = r.WithContext(ctx)
	r.TLS = nil // it is that of the hosts
	s.api.ServeHTTP(w, r)
}

// runCluster keeps this host to its lease, gives up hosts that died, and does what one host
// does for all, until stop is called.
func (s *Server) runCluster() (stop func()) {
	if s.hosts == nil {
		return s.inBackground(s.resumeLost, "sandboxes that the host lost are not resumed")
	}
	peers := s.api.ServePeers(s.peers, cluster.FromPeers(http.HandlerFunc(s.servePeer), s.cluster.Invitations, s.cluster.Mover, s.trees, &s.pieces))
	s.log.Info("host of a cluster", "name", s.config.Cluster.Name, "listen", s.peers.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.keeper.Run(ctx) })
	running.Go(func() {
		s.keeper.Sexton(ctx, s.hosts, cluster.FateOf(s.storedElsewhere, time.Now))
	})
	running.Go(func() {
		s.keeper.Duty(ctx, s.hosts, cluster.DutyAll, func(ctx context.Context) {
			s.onDuty.Store(true)
			defer s.onDuty.Store(false)
			stopWebhooks := s.inBackground(s.webhooks.Run, "webhooks cannot be read, and send nothing")
			defer stopWebhooks()
			stopAgents := s.runAgents()
			defer stopAgents()
			<-ctx.Done()
		})
	})
	running.Go(func() { s.refresh(ctx) })
	running.Go(func() {
		s.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: leaseTimes(s.config).Renew(), Now: s.buried, Hosts: s.hosts, MayTake: s.mayTake, Fits: s.fits})
	})
	running.Go(func() { s.cluster.Mover.Drain(ctx) })
	running.Go(func() { s.dropMoved(ctx) })
	running.Go(func() { s.runObjects(ctx) })
	return func() {
		cancel()
		running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if peers.Shutdown(ctx) != nil {
			peers.Close()
		}
	}
}

// resumeLostEvery is how often a server that is alone looks for sandboxes that its host lost.
const resumeLostEvery = 3 * time.Second

// resumeLost resumes, on a server that is alone, sandboxes that were gone when it came back.
func (s *Server) resumeLost(ctx context.Context) error {
	s.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: resumeLostEvery, MayTake: func() bool { return !s.lifecycle.Full() }})
	return nil
}

// refresh takes note of what other hosts have changed.
func (s *Server) refresh(ctx context.Context) {
	t := time.NewTicker(refreshEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := errors.Join(s.tokens.Refresh(ctx), s.logins.Refresh(ctx)); err != nil && ctx.Err() == nil {
			s.log.Warn("it cannot be found out what other hosts have changed", "error", err)
		}
	}
}

// storedElsewhere reports whether hosts besides the one that wrote a snapshot have it.
func (s *Server) storedElsewhere(n *bothy.Snapshot) bool { return n.Durable == bothy.DurableStore }

// fetchable reports whether this host can have the files of a snapshot without the host that
// wrote it.
func (s *Server) fetchable(ctx context.Context, id string) (bool, error) {
	if s.bucket == nil {
		return false, nil
	}
	n, err := s.store.Snapshot(ctx, id)
	return err == nil && s.storedElsewhere(n), err
}

// wakeable are the engine builds whose memory this host can wake, as far as is known.
func (s *Server) wakeable() (names []string) {
	all, err := builds.List(s.builds.Dir())
	if err != nil {
		return nil
	}
	vms := s.microvm.Load()
	for i := range all {
		b := &all[i]
		switch {
		case builds.RefusedBy(s.config.Engines.Refuse, b.Name, b) != "":
		case b.Engine != microvm.Name || vms != nil && vms.Wakes(b):
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}

// hostLabels are this host's; nil without a cluster.
func (s *Server) hostLabels() map[string]string {
	if s.hosts == nil {
		return nil
	}
	labels := map[string]string{}
	maps.Copy(labels, s.config.Cluster.Labels)
	return labels
}

// noHost is the error for memory that no host of the cluster can wake; nil without a cluster.
func (s *Server) noHost() func(context.Context, string, bothy.MemoryNeeds) error {
	if s.hosts == nil {
		return nil
	}
	return func(ctx context.Context, snapshotID string, needs bothy.MemoryNeeds) error {
		all, err := s.hosts.Hosts(ctx)
		if err != nil {
			return err
		}
		return cluster.NoHost(snapshotID, needs, all)
	}
}

// readyOf reports whether a sandbox of a template is held ready here.
func (s *Server) readyOf(template string) bool {
	return slices.ContainsFunc(s.lifecycle.PoolContents(), func(i bothy.HostPoolItem) bool {
		return i.Ready > 0 && (template == "" || i.Template == template)
	})
}

// templateAsked finds the template of a request for a sandbox, in any of its forms.
func (s *Server) templateAsked(ctx context.Context, project, asked string) (a cluster.Asked) {
	if to := s.config.E2B.Templates[asked]; to != "" {
		asked = to
	}
	t, err := s.templates.Find(project, cmp.Or(asked, bothy.DefaultTemplate))
	if err != nil {
		return a // it is refused where it is asked for
	}
	a.Name, a.Image = t.Name, bothy.HostTemplate(t.Digest)
	if t.Memory == nil {
		return a
	}
	a.Image = bothy.HostTemplate(t.Memory.BaseDigest)
	if n, err := s.store.Snapshot(ctx, t.Memory.SnapshotID); err == nil {
		a.Memory = n.Needs
	}
	if _, o, err := s.hosts.SnapshotHost(ctx, t.Memory.SnapshotID); err == nil && !o.Dead {
		a.Host = o.Host
	}
	return a
}

// wanted is what a sandbox wants of the host that takes it.
func (s *Server) wanted(ctx context.Context, id string) (*cluster.Wanted, error) {
	sb, err := s.store.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &cluster.Wanted{Project: sb.ProjectID, AutoResume: sb.AutoResume, Labels: sb.HostLabels}
	if w.Memory = s.lifecycle.MemoryOf(sb); w.Memory == nil && sb.SnapshotID != "" {
		w.Memory, err = s.memoryOf(ctx, sb.SnapshotID)
	}
	return w, err
}

// fits reports whether this host can wake a sandbox, and is one that it may run on.
func (s *Server) fits(ctx context.Context, id string) bool {
	w, err := s.wanted(ctx, id)
	if err != nil {
		return true // it is found out by trying
	}
	own := bothy.ClusterHost{Labels: s.config.Cluster.Labels}
	if p := hostProcessor(); p.Known() {
		own.Processor = &bothy.HostProcessor{Processor: p, CPULevel: s.config.Engine.CPULevel}
	}
	return cluster.Fits(&own, w)
}

// memoryOf is what a host must have to wake a snapshot's memory; nil where it has none.
func (s *Server) memoryOf(ctx context.Context, snapshotID string) (*bothy.MemoryNeeds, error) {
	n, err := s.store.Snapshot(ctx, snapshotID)
	if bothy.ErrorCode(err) == bothy.CodeSnapshotNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return n.Needs, nil
}

// imagesFor is how old what is said of the templates on this host may be.
const imagesFor = 10 * time.Second

// images are the templates on this host, as the other hosts are told of them.
type images struct {
	mu    sync.Mutex
	at    time.Time
	names []string
}

func (i *images) of(all func() ([]*bothy.Template, error)) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.at) < imagesFor {
		return i.names
	}
	list, err := all()
	if err != nil {
		return i.names
	}
	digests := make([]string, len(list))
	for j, t := range list {
		digests[j] = t.Digest
	}
	i.at, i.names = time.Now(), bothy.HostTemplates(digests)
	return i.names
}

// figures are what the other hosts are told of this one.
func (s *Server) figures() bothy.HostFigures {
	f := bothy.HostFigures{
		Version: s.version, CPUs: runtime.NumCPU(), Live: s.lifecycle.Live(), Ready: s.lifecycle.Pool(context.Background()).Ready,
		MaxSandboxes: s.config.Sandboxes.Max, FreeMemoryBytes: s.lifecycle.FreeMemoryBytes(),
		Templates: s.images.of(s.templates.Here), Builds: s.wakeable(),
	}
	if s.cluster.Mover != nil {
		f.MoveProblem = s.cluster.Mover.Problem()
	}
	var memory unix.Sysinfo_t
	if unix.Sysinfo(&memory) == nil {
		f.MemoryBytes = int64(memory.Totalram) * int64(memory.Unit)
		f.Load = float64(memory.Loads[0]) / (1 << 16) / float64(f.CPUs)
	}
	return f
}

// asHost tells the metrics how this host does.
func (s *Server) asHost() telemetry.ClusterHost {
	c := &s.counts
	return telemetry.ClusterHost{
		LeaseAge: s.keeper.LeaseAge().Seconds(), FreezeAge: leaseTimes(s.config).Suspend().Seconds(), Live: s.keeper.Live(), Duty: s.onDuty.Load(),
		Freezes: c.Freezes.Load(), GivenUp: c.GivenUp.Load(), Forwarded: c.Forwarded.Load(), Elsewhere: c.Elsewhere.Load(),
		Unanswered: c.Unanswered.Load(), LostPaused: c.LostPaused.Load(), LostEnded: c.LostEnded.Load(), Placed: c.Placed.Load(), Refused: c.Refused.Load(), Thaws: c.Thaws.Load(),
	}
}

// withoutPassword is a URL that may be shown.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return u.String()
}
