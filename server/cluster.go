package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
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
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/depot"
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

type hosts = store.Hosts

// member is this server as a host of a cluster.
type member struct {
	*Server
	*depot.Depot
	hosts // that share the database
	// authority issues the hosts' certificates, and keeper guards this host's lease.
	authority *cluster.Authority
	keeper    *cluster.Keeper
	router    *cluster.Router
	trees     *cluster.Trees
	peers     net.Listener
	counts    cluster.Counts
	images    images
	// gaveUp receives when this host has given another up.
	gaveUp chan struct{}
}

// Shared, Labels and Await implement lifecycle.Cluster.
func (m *member) Shared() bool                    { return true }
func (m *member) Labels() map[string]string       { return m.config.Cluster.Labels }
func (m *member) Await(ctx context.Context) error { return m.keeper.Await(ctx) }

func (m *member) frozen() string             { return m.keeper.Frozen() }
func (m *member) countsStorage() func() bool { return m.onDuty.Load }
func (m *member) serveAgents() func()        { return func() {} } // the host on duty works for them
func (m *member) sessionIDs() func() string  { return cluster.SessionIDs(m.hosts) }
func (m *member) files() bothy.FileService   { return sharedFiles{m.lifecycle.Files(), m} }

// countSealed counts none: the authority's key tells whether this host has the right one.
func (m *member) countSealed(context.Context, *vault.Vault) (all, closed int, err error) {
	return 0, 0, nil
}

func leaseTimes(c config.Config) cluster.Times {
	return cluster.Times{Lease: time.Duration(c.Cluster.LeaseSeconds) * time.Second}
}

func (m *member) notStarted(why error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text := why.Error()
	if e := (*bothy.Error)(nil); errors.As(why, &e) {
		text = e.Detail
	}
	if err := m.hosts.NotStarted(ctx, text); err != nil {
		m.log.Warn("cannot tell the other hosts that this one does not start", "error", err)
	}
}

// newMember makes this server a host of a cluster. Its keeper, which guards the lease, does not act until
// run.
func newMember(s *Server, hosts store.Hosts) *member {
	m := &member{Server: s, Depot: s.depot, hosts: hosts, gaveUp: make(chan struct{}, 1)}
	s.givenUp = make(chan error, 1)
	m.keeper = cluster.NewKeeper(cluster.KeeperOptions{
		Times: leaseTimes(s.config), Renewed: hosts.Renewed, Lost: hosts.Lost(), Log: s.log, Counts: &m.counts,
		Suspend: func() { s.lifecycle.Suspend() }, Unsuspend: func() { s.lifecycle.Unsuspend() },
		Abandon: func() {
			s.lifecycle.Abandon()
			s.givenUp <- bothy.Errorf(bothy.CodeConflict, "this host lost its lease and the other hosts took over, so its sandboxes have ended here").
				WithHint("Start it again: it rejoins under the same name.")
		},
		Older: hosts.Older,
		Keep: func() {
			s.givenUp <- bothy.Errorf(bothy.CodeConflict, "the database is older than this host, as after restoring a backup; this server stops, and its sandboxes stay frozen").
				WithHint("Restore the newest backup, and start it again. See docs/cluster.md for other options.")
		},
		GaveUp: func([]store.HostGivenUp) {
			select {
			case m.gaveUp <- struct{}{}:
			default: // a check is already pending
			}
		},
	})
	return m
}

// begin implements membership. It fails for a host that has not joined, which is told so before anything
// else that fails without the key of the cluster's secrets.
func (m *member) begin(ctx context.Context) (err error) {
	m.authority, err = cluster.OpenAuthority(ctx, m.hosts, m.vault)
	return err
}

// open creates what forwards requests to other hosts.
func (m *member) open(ctx context.Context) error {
	key, err := os.ReadFile(filepath.Join(m.config.Home, "secrets.key"))
	if err != nil {
		return err
	}
	c := m.config.Cluster
	m.cluster.Store = m.hosts
	m.cluster.Invitations = &cluster.Invitations{
		Hosts: m.hosts, Authority: m.authority, Address: cmp.Or(c.Address, c.Listen), Grant: cluster.Grant{Key: key, Store: withoutPassword(m.config.Store)},
	}
	gate := &cluster.Gate{}
	m.router = cluster.NewRouter(cluster.RouterOptions{
		Hosts: m.hosts, Authority: m.authority, Keeper: m.keeper, Gate: gate, Here: m.lifecycle.Here, Full: m.lifecycle.Full, Tight: m.lifecycle.Tight,
		Ready: m.readyOf, Origin: m.originAsked, Containers: m.config.OpenAI.Template, Template: m.templateAsked, Spread: m.hosts.LiveByHost, Wanted: m.wanted, Memory: m.memoryOf,
		Fetchable: m.fetchable, Claimed: m.lifecycle.Claimed,
		Port: m.api.PortOf, Agents: mcp.Path, Alone: mcp.Alone, Upload: m.uploadProject, HasBuild: m.hasBuild, Fail: m.fail, Log: m.log, Counts: &m.counts,
		BodyMemory: m.api.BodyMemory, May: m.mayReach,
		Authenticate: func(r *http.Request) (c cluster.Caller, err error) {
			project, token, login, err := m.api.LoggedIn(r, keyOfDoor(r))
			if login {
				c = cluster.Caller{Project: project, TokenID: token}
			}
			c.Owner = project
			return c, err
		},
	})
	m.api.SetPeers(m.router)
	trees := cluster.NewTrees(m.hosts, m.authority, m.OpenFile)
	m.trees, m.depot.Trees = trees, trees
	m.cluster.Mover = m.newMover(gate)
	m.hosts.SetFigures(m.figures)
	m.metrics.Cluster(m.asHost)
	problem, err := cluster.ProcessorProblem(ctx, m.hosts)
	if err != nil {
		return err
	}
	if problem != "" {
		m.log.Warn("the processors of the hosts differ", "problem", problem)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return bothy.Errorf(bothy.CodeConflict, "cannot listen on %s (cluster.listen)", c.Listen).
			WithHint("Stop what listens there, or choose another address.").Because(err)
	}
	m.undo.Add(func() { l.Close() })
	m.peers = tls.NewListener(cluster.Listen(l), m.authority.Server())
	return nil
}

// uploadProject returns the project of a request that uploads files for a build to an address
// made for it, as E2B's clients do.
func (m *member) uploadProject(r *http.Request) string {
	token, ok := strings.CutPrefix(r.URL.Path, "/templates/upload/")
	if !ok || m.e2b == nil {
		return ""
	}
	return m.e2b.UploadProject(token)
}

// fail answers a request that no host could be found for. To an agent, it is the error of its tool.
func (m *member) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.URL.Path == mcp.Path && cluster.PeerFrom(r.Context()) == nil && mcp.FailCall(w, r, err) {
		return
	}
	m.api.Fail(w, r, err)
}

// hasBuild reports whether this host knows a template build.
func (m *member) hasBuild(id string) bool {
	return m.builder.Has(id) || m.e2b != nil && m.e2b.HasBuild(id)
}

// servePeer answers a request that another host forwarded, as if it had arrived here.
func (m *member) servePeer(w http.ResponseWriter, r *http.Request) {
	p := cluster.PeerFrom(r.Context())
	ctx := middleware.WithPeer(r.Context(), middleware.Peer{Remote: p.Remote, Scheme: p.Scheme, Project: p.Project, TokenID: p.TokenID})
	if p.Alone {
		ctx = mcp.Alone(ctx)
	}
	r = r.WithContext(ctx)
	r.TLS = nil // this is the connection between hosts, not the client's
	m.api.ServeHTTP(w, r)
}

// run renews this host's lease, gives up hosts that died, and does the shared work while on duty, until
// stop is called.
func (m *member) run() (stop func()) {
	peers := m.api.ServePeers(m.peers, cluster.FromPeers(http.HandlerFunc(m.servePeer), m.cluster.Invitations, m.cluster.Mover, m.trees))
	m.log.Info("host of a cluster", "name", m.config.Cluster.Name, "listen", m.peers.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.keeper.Run(ctx) })
	running.Go(func() {
		m.keeper.GiveUpDead(ctx, m.hosts, cluster.FateOf(m.storedElsewhere, time.Now))
	})
	running.Go(func() {
		m.keeper.Duty(ctx, m.hosts, cluster.DutyAll, func(ctx context.Context) {
			m.onDuty.Store(true)
			defer m.onDuty.Store(false)
			stopWebhooks := m.inBackground(m.webhooks.Run, "cannot read the webhooks; none are sent")
			defer stopWebhooks()
			stopAgents := m.runAgents()
			defer stopAgents()
			<-ctx.Done()
		})
	})
	running.Go(func() { m.refresh(ctx) })
	running.Go(func() {
		m.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: leaseTimes(m.config).Renew(), Now: m.gaveUp, MayTake: m.router.MayTake, Fits: m.fits})
	})
	running.Go(func() { m.cluster.Mover.Drain(ctx) })
	running.Go(func() { m.dropMoved(ctx) })
	running.Go(func() { m.depot.Run(ctx) })
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

// refresh reads what other hosts have changed.
func (m *member) refresh(ctx context.Context) {
	t := time.NewTicker(refreshEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := errors.Join(m.tokens.Refresh(ctx), m.logins.Refresh(ctx)); err != nil && ctx.Err() == nil {
			m.log.Warn("cannot read what other hosts have changed", "error", err)
		}
	}
}

// storedElsewhere reports whether a snapshot survives the loss of the host that wrote it.
func (m *member) storedElsewhere(n *bothy.Snapshot) bool { return n.Durable == bothy.DurableStore }

// fetchable reports whether this host can get the files of a snapshot without the host that
// wrote it.
func (m *member) fetchable(ctx context.Context, id string) (bool, error) {
	if m.bucket == nil {
		return false, nil
	}
	n, err := m.store.Snapshot(ctx, id)
	return err == nil && m.storedElsewhere(n), err
}

// wakeable returns the engine builds whose memory snapshots this host can restore, as far as is
// known.
func (m *member) wakeable() (names []string) {
	all, err := builds.List(m.builds.Dir())
	if err != nil {
		return nil
	}
	vms := m.microvm.Load()
	for i := range all {
		b := &all[i]
		switch {
		case builds.RefusedBy(m.config.Engines.Refuse, b.Name, b) != "":
		case b.Engine != microvm.Name || vms != nil && vms.Wakes(b):
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}

// NoHost implements lifecycle.Cluster.
func (m *member) NoHost(ctx context.Context, snapshotID string, needs bothy.MemoryNeeds) error {
	all, err := m.hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	if caller := bothy.CallerFrom(ctx); caller != nil && !caller.IsOperator() {
		all = nil // how the hosts are made is the operator's to know
	}
	return cluster.NoHost(snapshotID, needs, all)
}

// readyOf reports whether the ready pool here has a sandbox of a template.
func (m *member) readyOf(template string) bool {
	return slices.ContainsFunc(m.lifecycle.PoolContents(), func(i bothy.HostPoolItem) bool {
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
func (m *member) originAsked(ctx context.Context, project, asked string) (template, snapshot string) {
	if m.e2b == nil {
		return asked, ""
	}
	ctx = bothy.WithCaller(ctx, &bothy.Caller{ProjectID: project, Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeTemplatesRead}})
	template, snapshot, err := m.e2b.Origin(ctx, asked)
	if err != nil {
		return asked, "" // the operation itself reports it
	}
	return template, snapshot
}

// templateAsked resolves the template in a request for a sandbox.
func (m *member) templateAsked(ctx context.Context, project, asked string) (a cluster.Asked) {
	t, err := m.templates.Find(project, cmp.Or(asked, bothy.DefaultTemplate))
	if err != nil {
		return a // the operation itself reports it
	}
	a.Name, a.Image = t.Name, bothy.HostTemplate(t.Digest)
	if t.Memory == nil {
		return a
	}
	a.Image = bothy.HostTemplate(t.Memory.BaseDigest)
	if n, err := m.store.Snapshot(ctx, t.Memory.SnapshotID); err == nil {
		a.Memory = n.Needs
	}
	if _, o, err := m.hosts.SnapshotHost(ctx, t.Memory.SnapshotID); err == nil && !o.Dead {
		a.Host = o.Host
	}
	return a
}

// mayReach reports whether a request may reach a sandbox: with a key of the given project, or
// without one with a link or a token.
func (m *member) mayReach(r *http.Request, id, project string) bool {
	row, err := m.store.Sandbox(r.Context(), id)
	switch {
	case err != nil:
		return true // the operation itself reports it
	case project != "":
		return row.ProjectID == project
	case row.Pooled:
		return false
	}
	if key := keyOfDoor(r); key != "" { // E2B's older clients name the sandbox in every request
		if project, _, _, err := m.api.LoggedIn(r, key); err == nil {
			return project == row.ProjectID
		}
	}
	return m.e2b != nil && m.e2b.MayReach(r, row.Public()) || m.api.ProjectOf(r) == row.ProjectID
}

// wanted returns what a sandbox requires of the host that takes it.
func (m *member) wanted(ctx context.Context, id string) (*cluster.Wanted, error) {
	sb, err := m.store.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &cluster.Wanted{Project: sb.ProjectID, AutoResume: sb.AutoResume, Labels: sb.HostLabels}
	if w.Memory = m.lifecycle.MemoryOf(sb); w.Memory == nil && sb.SnapshotID != "" {
		w.Memory, err = m.memoryOf(ctx, sb.SnapshotID)
	}
	return w, err
}

// fits reports whether this host can restore a sandbox and satisfies its host labels.
func (m *member) fits(ctx context.Context, id string) bool {
	w, err := m.wanted(ctx, id)
	if err != nil {
		return true // restoring it reports the error
	}
	own := bothy.ClusterHost{Labels: m.config.Cluster.Labels}
	if p := hostProcessor(); p.Known() {
		own.Processor = &bothy.HostProcessor{Processor: p, CPULevel: m.config.Engine.CPULevel}
	}
	return cluster.Fits(&own, w)
}

// memoryOf returns what a host needs to restore a snapshot's memory; nil if it has none.
func (m *member) memoryOf(ctx context.Context, snapshotID string) (*bothy.MemoryNeeds, error) {
	n, err := m.store.Snapshot(ctx, snapshotID)
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
func (m *member) figures() bothy.HostFigures {
	f := bothy.HostFigures{
		Version: m.version, CPUs: runtime.NumCPU(), Live: m.lifecycle.Live(), Ready: m.lifecycle.Pool(context.Background()).Ready,
		MaxSandboxes: m.config.Sandboxes.Max, FreeMemoryBytes: m.lifecycle.FreeMemoryBytes(),
		Templates: m.images.of(m.templates.Here), Builds: m.wakeable(), MoveProblem: m.cluster.Mover.Problem(),
	}
	var memory unix.Sysinfo_t
	if unix.Sysinfo(&memory) == nil {
		f.MemoryBytes = int64(memory.Totalram) * int64(memory.Unit)
		f.Load = float64(memory.Loads[0]) / (1 << 16) / float64(f.CPUs)
	}
	return f
}

// asHost returns the metrics of this host as part of the cluster.
func (m *member) asHost() telemetry.ClusterHost {
	c := &m.counts
	return telemetry.ClusterHost{
		LeaseAge: m.keeper.LeaseAge().Seconds(), FreezeAge: leaseTimes(m.config).Suspend().Seconds(), Live: m.keeper.Live(), Duty: m.onDuty.Load(),
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
