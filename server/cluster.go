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
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/e2b"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/mcp"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/telemetry"
)

// refreshEvery is how often this host reads what other hosts have changed: keys, plans and
// logins.
const refreshEvery = 2 * time.Second

// JoinCluster turns an empty home into that of a new host of a cluster, using a join token. It
// returns the URL of the cluster's database without its password.
func JoinCluster(ctx context.Context, c config.Config, token string) (string, error) {
	return cluster.Join(ctx, token, c.Home)
}

func leaseTimes(c config.Config) cluster.Times {
	return cluster.Times{Lease: time.Duration(c.Cluster.LeaseSeconds) * time.Second}
}

// notStarted tells the other hosts why this one does not start.
func (s *Server) notStarted(why error) {
	if s.hosts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text := why.Error()
	if e := (*bothy.Error)(nil); errors.As(why, &e) {
		text = e.Detail
	}
	if err := s.hosts.NotStarted(ctx, text); err != nil {
		s.log.Warn("cannot tell the other hosts that this one does not start", "error", err)
	}
}

// openKeeper creates the keeper, which guards this host's lease. It does not act until
// runCluster.
func (s *Server) openKeeper() {
	s.givenUp, s.gaveUp = make(chan struct{}), make(chan struct{}, 1)
	s.keeper = cluster.NewKeeper(cluster.KeeperOptions{
		Times: leaseTimes(s.config), Renewed: s.hosts.Renewed, Lost: s.hosts.Lost(), Log: s.log, Counts: &s.counts,
		Suspend: func() { s.lifecycle.Suspend() }, Unsuspend: func() { s.lifecycle.Unsuspend() },
		Abandon: func() { s.lifecycle.Abandon(); close(s.givenUp) },
		Older:   s.hosts.Older, Keep: func() { close(s.givenUp) },
		GaveUp: func([]store.HostGivenUp) {
			select {
			case s.gaveUp <- struct{}{}:
			default: // a check is already pending
			}
		},
	})
	s.storeLost = nil // the keeper handles it
}

// elsewhere counts the sandboxes of a project on other hosts. It is nil without a cluster.
func (s *Server) elsewhere() func(context.Context, string) (int, error) {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.LiveOf
}

// treeBudgets reads budgets that other hosts may have changed. It is nil without a cluster.
func (s *Server) treeBudgets() func(context.Context, []string) (map[string]float64, error) {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.TreeBudgets
}

// timedSnapshot reads snapshots with times that can be compared. It is nil without a cluster.
func (s *Server) timedSnapshot() func(context.Context, string) (*bothy.Snapshot, error) {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.TimedSnapshot
}

// startShared stores a starting sandbox within the limits that all hosts share. It is nil
// without a cluster.
func (s *Server) startShared() func(context.Context, *store.Sandbox, store.StartBounds) error {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.StartSandbox
}

// claimDead claims a sandbox of a dead host in order to end it. It is nil without a cluster.
func (s *Server) claimDead() func(context.Context, string) (bool, error) {
	if s.hosts == nil {
		return nil
	}
	return s.hosts.ClaimDead
}

// await waits until this host may act for its sandboxes. It is nil without a cluster.
func (s *Server) await() func(context.Context) error {
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Await
}

// countsStorage reports whether this host meters snapshots and templates for all hosts.
func (s *Server) countsStorage() func() bool {
	if s.hosts == nil {
		return nil
	}
	return s.onDuty.Load
}

// openAuthority opens the cluster's authority. That fails for a host that has not joined, which is
// told so before anything else that fails without the key of the cluster's secrets.
func (s *Server) openAuthority(ctx context.Context) (err error) {
	if s.hosts != nil {
		s.authority, err = cluster.OpenAuthority(ctx, s.hosts, s.vault)
	}
	return err
}

// openCluster creates what forwards requests to other hosts.
func (s *Server) openCluster(ctx context.Context) error {
	if s.hosts == nil {
		return nil
	}
	authority := s.authority
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
		Hosts: s.hosts, Authority: authority, Keeper: s.keeper, Gate: gate, Here: s.lifecycle.Here, Full: s.lifecycle.Full, Tight: s.lifecycle.Tight,
		Ready: s.readyOf, Origin: s.originAsked, Containers: s.config.OpenAI.Template, Template: s.templateAsked, Spread: s.hosts.LiveByHost, Wanted: s.wanted, Memory: s.memoryOf,
		Fetchable: s.fetchable, Claimed: s.lifecycle.Claimed,
		Port: s.api.PortOf, Agents: mcp.Path, Alone: mcp.Alone, Upload: s.uploadProject, HasBuild: s.hasBuild, Fail: s.api.Fail, Log: s.log, Counts: &s.counts,
		BodyMemory: s.api.BodyMemory, May: s.mayReach,
		Authenticate: func(r *http.Request) (c cluster.Caller, err error) {
			project, token, login, err := s.api.LoggedIn(r, keyOfDoor(r))
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
	s.router = router
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
		return bothy.Errorf(bothy.CodeConflict, "cannot listen on %s (cluster.listen)", c.Listen).
			WithHint("Stop what listens there, or choose another address.").Because(err)
	}
	s.undo.Add(func() { l.Close() })
	s.peers = tls.NewListener(cluster.Listen(l), authority.Server())
	return nil
}

// uploadProject returns the project of a request that uploads files for a build to an address
// made for it, as E2B's clients do.
func (s *Server) uploadProject(r *http.Request) string {
	token, ok := strings.CutPrefix(r.URL.Path, "/templates/upload/")
	if !ok || s.e2b == nil {
		return ""
	}
	return s.e2b.UploadProject(token)
}

// hasBuild reports whether this host knows a template build.
func (s *Server) hasBuild(id string) bool {
	return s.builder.Has(id) || s.e2b != nil && s.e2b.HasBuild(id)
}

// servePeer answers a request that another host forwarded, as if it had arrived here.
func (s *Server) servePeer(w http.ResponseWriter, r *http.Request) {
	p := cluster.PeerFrom(r.Context())
	ctx := middleware.WithPeer(r.Context(), middleware.Peer{Remote: p.Remote, Scheme: p.Scheme, Project: p.Project, TokenID: p.TokenID})
	if p.Alone {
		ctx = mcp.Alone(ctx)
	}
	r = r.WithContext(ctx)
	r.TLS = nil // this is the connection between hosts, not the client's
	s.api.ServeHTTP(w, r)
}

// runCluster renews this host's lease, gives up hosts that died, and does the shared work while
// on duty, until stop is called.
func (s *Server) runCluster() (stop func()) {
	if s.hosts == nil {
		return s.inBackground(s.resumeLost, "cannot resume the sandboxes that the host lost")
	}
	peers := s.api.ServePeers(s.peers, cluster.FromPeers(http.HandlerFunc(s.servePeer), s.cluster.Invitations, s.cluster.Mover, s.trees))
	s.log.Info("host of a cluster", "name", s.config.Cluster.Name, "listen", s.peers.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.keeper.Run(ctx) })
	running.Go(func() {
		s.keeper.GiveUpDead(ctx, s.hosts, cluster.FateOf(s.storedElsewhere, time.Now))
	})
	running.Go(func() {
		s.keeper.Duty(ctx, s.hosts, cluster.DutyAll, func(ctx context.Context) {
			s.onDuty.Store(true)
			defer s.onDuty.Store(false)
			stopWebhooks := s.inBackground(s.webhooks.Run, "cannot read the webhooks; none are sent")
			defer stopWebhooks()
			stopAgents := s.runAgents()
			defer stopAgents()
			<-ctx.Done()
		})
	})
	running.Go(func() { s.refresh(ctx) })
	running.Go(func() {
		s.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: leaseTimes(s.config).Renew(), Now: s.gaveUp, Hosts: s.hosts, MayTake: s.mayTake, Fits: s.fits})
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

// resumeLostEvery is how often a server without a cluster looks for sandboxes that its host
// lost.
const resumeLostEvery = 3 * time.Second

// resumeLost resumes the sandboxes whose machines were gone when a server without a cluster
// started.
func (s *Server) resumeLost(ctx context.Context) error {
	s.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: resumeLostEvery, MayTake: func() bool { return !s.lifecycle.Full() }})
	return nil
}

// refresh reads what other hosts have changed.
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
			s.log.Warn("cannot read what other hosts have changed", "error", err)
		}
	}
}

// storedElsewhere reports whether a snapshot survives the loss of the host that wrote it.
func (s *Server) storedElsewhere(n *bothy.Snapshot) bool { return n.Durable == bothy.DurableStore }

// fetchable reports whether this host can get the files of a snapshot without the host that
// wrote it.
func (s *Server) fetchable(ctx context.Context, id string) (bool, error) {
	if s.bucket == nil {
		return false, nil
	}
	n, err := s.store.Snapshot(ctx, id)
	return err == nil && s.storedElsewhere(n), err
}

// wakeable returns the engine builds whose memory snapshots this host can restore, as far as is
// known.
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

// hostLabels returns this host's labels. It is nil without a cluster.
func (s *Server) hostLabels() map[string]string {
	if s.hosts == nil {
		return nil
	}
	labels := map[string]string{}
	maps.Copy(labels, s.config.Cluster.Labels)
	return labels
}

// noHost returns the error for memory that no host of the cluster can restore. It is nil
// without a cluster.
func (s *Server) noHost() func(context.Context, string, bothy.MemoryNeeds) error {
	if s.hosts == nil {
		return nil
	}
	return func(ctx context.Context, snapshotID string, needs bothy.MemoryNeeds) error {
		all, err := s.hosts.Hosts(ctx)
		if err != nil {
			return err
		}
		if caller := bothy.CallerFrom(ctx); caller != nil && !caller.IsOperator() {
			all = nil // how the hosts are made is the operator's to know
		}
		return cluster.NoHost(snapshotID, needs, all)
	}
}

// readyOf reports whether the ready pool here has a sandbox of a template.
func (s *Server) readyOf(template string) bool {
	return slices.ContainsFunc(s.lifecycle.PoolContents(), func(i bothy.HostPoolItem) bool {
		return i.Ready > 0 && (template == "" || i.Template == template)
	})
}

// keyOfDoor returns the key of a request to E2B's API, which has its own form of keys and another
// header for them; "" of any other request.
func keyOfDoor(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == mcp.Path {
		return ""
	}
	return e2b.KeyOf(r)
}

// originAsked resolves what E2B's clients call a template, as their API will.
func (s *Server) originAsked(ctx context.Context, project, asked string) (template, snapshot string) {
	if s.e2b == nil {
		return asked, ""
	}
	ctx = bothy.WithCaller(ctx, &bothy.Caller{ProjectID: project, Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeTemplatesRead}})
	template, snapshot, err := s.e2b.Origin(ctx, asked)
	if err != nil {
		return asked, "" // the operation itself reports it
	}
	return template, snapshot
}

// templateAsked resolves the template in a request for a sandbox.
func (s *Server) templateAsked(ctx context.Context, project, asked string) (a cluster.Asked) {
	t, err := s.templates.Find(project, cmp.Or(asked, bothy.DefaultTemplate))
	if err != nil {
		return a // the operation itself reports it
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

// mayReach reports whether a request may reach a sandbox: with a key of the given project, or
// without one with a link or a token.
func (s *Server) mayReach(r *http.Request, id, project string) bool {
	row, err := s.store.Sandbox(r.Context(), id)
	switch {
	case err != nil:
		return true // the operation itself reports it
	case project != "":
		return row.ProjectID == project
	case row.Pooled:
		return false
	}
	if key := keyOfDoor(r); key != "" { // E2B's older clients name the sandbox in every request
		if project, _, _, err := s.api.LoggedIn(r, key); err == nil {
			return project == row.ProjectID
		}
	}
	return s.e2b != nil && s.e2b.MayReach(r, row.Public()) || s.api.ProjectOf(r) == row.ProjectID
}

// wanted returns what a sandbox requires of the host that takes it.
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

// fits reports whether this host can restore a sandbox and satisfies its host labels.
func (s *Server) fits(ctx context.Context, id string) bool {
	w, err := s.wanted(ctx, id)
	if err != nil {
		return true // restoring it reports the error
	}
	own := bothy.ClusterHost{Labels: s.config.Cluster.Labels}
	if p := hostProcessor(); p.Known() {
		own.Processor = &bothy.HostProcessor{Processor: p, CPULevel: s.config.Engine.CPULevel}
	}
	return cluster.Fits(&own, w)
}

// memoryOf returns what a host needs to restore a snapshot's memory; nil if it has none.
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

// imagesFor is how long the list of this host's templates is cached.
const imagesFor = 10 * time.Second

// images caches the templates on this host, as published to the other hosts.
type images struct {
	mu    sync.Mutex
	at    time.Time
	names []string
}

func (i *images) of(all func() ([]*store.Template, error)) []string {
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

// figures returns what this host publishes about itself to the others.
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

// asHost returns the metrics of this host as part of the cluster.
func (s *Server) asHost() telemetry.ClusterHost {
	c := &s.counts
	return telemetry.ClusterHost{
		LeaseAge: s.keeper.LeaseAge().Seconds(), FreezeAge: leaseTimes(s.config).Suspend().Seconds(), Live: s.keeper.Live(), Duty: s.onDuty.Load(),
		Freezes: c.Freezes.Load(), GivenUp: c.GivenUp.Load(), Forwarded: c.Forwarded.Load(), Elsewhere: c.Elsewhere.Load(),
		Unanswered: c.Unanswered.Load(), LostPaused: c.LostPaused.Load(), LostEnded: c.LostEnded.Load(), Placed: c.Placed.Load(), Refused: c.Refused.Load(), Thaws: c.Thaws.Load(),
	}
}

// withoutPassword removes the password from a URL.
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
