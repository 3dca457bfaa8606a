package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// DutyAll is the duty of the host that runs webhooks and managed agents for all. Requests about
// them go to it.
const DutyAll = "all"

// Caller is the author of a request.
type Caller struct {
	// Project and TokenID are set if the request has a login on this host instead of a key that
	// other hosts could check.
	Project, TokenID string
	// Owner is always the project.
	Owner string
}

// RouterOptions configure a Router.
type RouterOptions struct {
	Hosts     store.Hosts
	Authority *Authority
	Keeper    *Keeper
	// Gate holds requests for sandboxes that are being moved. Optional.
	Gate *Gate
	// Here reports whether a sandbox runs on this host.
	Here func(id string) bool
	// Tight reports whether this host could have no room for that many more sandboxes. Optional.
	Tight func(more int) bool
	// Full reports whether this host has no room for another sandbox, and Ready whether it has
	// a ready one of a template.
	Full  func() bool
	Ready func(template string) bool
	// Origin resolves what E2B's clients call a template: one, or a snapshot. Optional.
	Origin func(ctx context.Context, project, asked string) (template, snapshot string)
	// Containers is the template of OpenAI's containers.
	Containers string
	// Template resolves a template that a project asks for. Optional.
	Template func(ctx context.Context, project, asked string) Asked
	// Wanted returns what a sandbox requires of a host, and Memory what a snapshot does.
	// Optional.
	Wanted func(ctx context.Context, id string) (*Wanted, error)
	Memory func(ctx context.Context, snapshot string) (*bothy.MemoryNeeds, error)
	// Spread counts a project's running sandboxes on each host. Optional.
	Spread func(ctx context.Context, project string) (map[string]int, error)
	// Fetchable reports whether this host can get the files of a snapshot without the host that
	// wrote it.
	Fetchable func(ctx context.Context, id string) (bool, error)
	// Claimed is called for a sandbox without a host that this host has claimed. Optional.
	Claimed func(id string)
	// Port returns the sandbox of a request for a port by its host name or by a link, or "".
	Port func(r *http.Request) (sandbox string)
	// Authenticate finds the caller of a request.
	Authenticate func(r *http.Request) (Caller, error)
	// May reports whether a request may reach a sandbox. owner is the project of its key, or
	// empty if it has none, as with a link. Optional.
	May func(r *http.Request, sandbox, owner string) bool
	// BodyMemory returns what reserves memory of a project for a request's body. Optional.
	BodyMemory func(r *http.Request, project string) func(ctx context.Context, n int64) error
	// Agents is the path of the MCP endpoint, and Alone marks a message as sessionless.
	Agents string
	// Upload returns the project of a request that uploads files for a build without a key.
	// HasBuild reports whether this host knows a build. Both are optional.
	Upload   func(r *http.Request) (project string)
	HasBuild func(id string) bool
	Alone    func(context.Context) context.Context
	Fail     func(w http.ResponseWriter, r *http.Request, err error)
	Log      *slog.Logger
	Counts   *Counts
}

// Router forwards requests to the hosts that have what they are about.
type Router struct {
	o         RouterOptions
	transport transport

	// creating counts the requests for sandboxes that this host answers for itself.
	creating atomic.Int64

	mu    sync.Mutex
	known map[string]known // owners of sandboxes on other hosts
	hosts []bothy.ClusterHost
	asked time.Time // when hosts were listed
	// placed counts sandboxes placed on hosts since then, in total and by project.
	placed  map[string]int
	spreads map[string]spread
	// processors are the hosts' processors, by epoch.
	processors map[int64]*bothy.HostProcessor
	// mover moves away sandboxes that this host cannot restore.
	mover *Mover
}

// known is a recently seen owner of a sandbox.
type known struct {
	host, address string
	at            time.Time
}

const (
	// knownFor is how long an owner is cached. A host that no longer owns the sandbox refuses
	// the request.
	knownFor = 30 * time.Second
	maxKnown = 100_000
	// hostsFor is how long the list of up to a hundred hosts is cached.
	hostsFor = time.Second
	// maxPeek limits how much of a body is read to see what the request is about, and maxReplay
	// how much is kept for a second attempt.
	maxPeek   = 32 << 20
	maxReplay = 256 << 10
	// maxClaims is how often a host looks for the owner of a sandbox that others claim at the
	// same time. claimPause is the pause after the first time, which then doubles.
	maxClaims  = 5
	claimPause = 25 * time.Millisecond
	// firstPeek is how much of a body is read first; each further step doubles it. peekFactor is
	// how many copies of it are in memory while it is read and decoded.
	firstPeek, peekFactor = 64 << 10, 3
)

// NewRouter makes a router.
func NewRouter(o RouterOptions) *Router {
	o.Counts = cmp.Or(o.Counts, &Counts{})
	return &Router{o: o, transport: transport{authority: o.Authority}, known: map[string]known{}, placed: map[string]int{}, spreads: map[string]spread{}}
}

// kind is what a request does, as far as that decides which host answers.
type kind int

const (
	other   kind = iota
	duty         // about work that one host does for all
	create       // creates a sandbox
	build        // about a template build
	wake         // resumes a paused sandbox
	use          // resumes it if it has auto_resume
	restart      // restarts an ended sandbox, on any host
	remove       // ends a sandbox, also one of a dead host
	move         // moves a sandbox, and must not pass the gate: it waits for the other requests
)

// target is what a request is about.
type target struct {
	kind
	sandbox, snapshot string
	// template is the template of a new sandbox; "" is the default.
	template string
	// labels are those that the host of a new sandbox must have.
	labels map[string]string
	// alone is set for an MCP message that another host may answer, and session is its session.
	alone   bool
	session string
	// buildID says which build it is about.
	buildID string
	// body says that the body must be read to find out.
	body bool
}

// containersPath is where OpenAI's clients create containers.
const containersPath = "/v1/containers"

var (
	sandboxID  = regexp.MustCompile(`^sbx[0-9a-hjkmnp-z]{16}$`)
	snapshotID = regexp.MustCompile(`^snp[0-9a-hjkmnp-z]{16}$`)
)

// Route forwards a request, or reports that this host must answer it. The caller calls leave
// afterwards.
func (x *Router) Route(w http.ResponseWriter, r *http.Request) (handled bool, leave func()) {
	peer := PeerFrom(r.Context())
	if peer == nil {
		dropPeerHeaders(r.Header)
	}
	caller, t, err := x.targetOf(r, peer)
	if err != nil {
		return false, func() {} // this host answers with the error
	}
	if t.body {
		if err := x.readTarget(r, &t, caller.Owner); err != nil {
			x.o.Fail(w, r, err)
			return true, func() {}
		}
	}
	if handled, leave = x.route(w, r, t, caller, peer); !handled && t.session != "" {
		x.leaveSession(r, t.session)
	}
	return handled, leave
}

func (x *Router) route(w http.ResponseWriter, r *http.Request, t target, caller Caller, peer *Peer) (handled bool, leave func()) {
	none := func() {}
	switch {
	case t.sandbox != "" && t.kind == move:
		return x.toSandbox(w, r, t, caller, peer), none
	case t.sandbox != "":
		x.moveBeforeResume(r, t, caller, peer)
		return x.gated(w, r, t.sandbox, func() bool { return x.toSandbox(w, r, t, caller, peer) })
	case t.snapshot != "":
		return x.gated(w, r, x.sandboxOf(r, t.snapshot), func() bool { return x.toSnapshot(w, r, t, caller, peer) })
	case t.kind == duty && peer == nil:
		return x.toDuty(w, r, caller), none
	case t.kind == create && peer == nil:
		x.creating.Add(1)
		if handled = x.place(w, r, t, caller); handled {
			x.creating.Add(-1)
			return true, none
		}
		return false, func() { x.creating.Add(-1) }
	case t.kind == build && peer == nil:
		return x.toBuild(w, r, t, caller), none
	case t.buildID != "" && x.o.HasBuild != nil && !x.o.HasBuild(t.buildID):
		// The host that asked asks the next, and tells its client in the end.
		x.o.Fail(w, r, elsewhere("build "+t.buildID))
		return true, none
	case t.session != "" && peer == nil:
		return x.toSession(w, r, t, caller), none
	}
	return false, none
}

// gated holds a request while its sandbox moves away. Forwarded requests are counted by the
// host that answers them.
func (x *Router) gated(w http.ResponseWriter, r *http.Request, sandbox string, route func() bool) (handled bool, leave func()) {
	if x.o.Gate == nil || sandbox == "" {
		return route(), func() {}
	}
	leave, err := x.o.Gate.Enter(r.Context(), sandbox)
	if err != nil {
		x.o.Fail(w, r, err)
		return true, func() {}
	}
	return route(), leave
}

func (x *Router) sandboxOf(r *http.Request, snapshot string) string {
	if x.o.Gate == nil {
		return ""
	}
	sandbox, _, err := x.o.Hosts.SnapshotHost(r.Context(), snapshot)
	if err != nil {
		return ""
	}
	return sandbox
}

// targetOf determines what a request is about, as far as that is not in its body, and
// authenticates the caller.
func (x *Router) targetOf(r *http.Request, peer *Peer) (c Caller, t target, err error) {
	if id := x.o.Port(r); id != "" {
		return c, target{sandbox: id}, nil
	}
	if id, _, _ := strings.Cut(r.Header.Get("E2b-Sandbox-Id"), "-"); sandboxID.MatchString(id) {
		return c, target{sandbox: id}, nil
	}
	t = ofPath(r)
	if r.URL.Path == x.o.Agents {
		t.session = r.Header.Get(headerSession)
	}
	t.body = t.kind == create || r.URL.Path == x.o.Agents && r.Method == http.MethodPost
	if t.sandbox == "" && t.snapshot == "" && t.session == "" && t.kind == other && !t.body {
		return c, t, nil
	}
	if x.o.Upload != nil {
		if project := x.o.Upload(r); project != "" {
			return Caller{Owner: project}, t, nil
		}
	}
	if peer == nil {
		c, err = x.o.Authenticate(r)
	}
	return c, t, err
}

// ofPath determines from its path what a request is about.
func ofPath(r *http.Request) (t target) {
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	for i, p := range parts {
		if reads && i == len(parts)-1 && i == 1 && (parts[0] == "sandboxes" || parts[0] == "snapshots") && path != r.URL.Path {
			break // only the record, which every host can read
		}
		switch {
		case sandboxID.MatchString(p) && t.sandbox == "" && t.snapshot == "":
			t.sandbox = p
		case snapshotID.MatchString(p) && t.sandbox == "" && t.snapshot == "":
			t.snapshot = p
		}
	}
	isBuild, id := ofBuild(r)
	switch {
	case t.sandbox != "":
		t.kind = kindOfUse(r, t.sandbox)
	case t.snapshot != "":
	case isBuild:
		t.kind, t.buildID = build, id
	case path != r.URL.Path && (parts[0] == "webhooks" || parts[0] == "agents"):
		t.kind = duty
	case r.Method == http.MethodPost && (path == "/sandboxes" || r.URL.Path == "/v2/sandboxes" || r.URL.Path == containersPath):
		t.kind = create
	}
	return t
}

// readTarget determines from its body what a request of a project is about. The body can be read
// again.
func (x *Router) readTarget(r *http.Request, t *target, project string) error {
	body, err := x.peek(r, project)
	if err != nil {
		return err
	}
	rest := r.Body
	var whole io.Reader = bytes.NewReader(body)
	if len(body) > maxPeek {
		whole = io.MultiReader(whole, rest)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{whole, rest}
	if len(body) <= maxPeek {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.ContentLength = int64(len(body))
		r.TransferEncoding = nil
	}
	if t.kind == create {
		x.readCreate(r, body, t, project)
		return nil
	}
	var message struct {
		Method string `json:"method"`
		Params struct {
			Name      string         `json:"name"`
			Arguments map[string]any `json:"arguments"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &message) != nil || message.Method != "tools/call" {
		return nil
	}
	t.alone = true
	for _, name := range []string{"id", "sandbox_id", "snapshot_id"} { // other arguments are data, whatever they look like
		id, _ := message.Params.Arguments[name].(string)
		switch {
		case sandboxID.MatchString(id):
			t.sandbox = id
		case snapshotID.MatchString(id):
			t.snapshot = id
		}
	}
	if message.Params.Name == "get_build" {
		t.buildID, _ = message.Params.Arguments["build_id"].(string)
	}
	if t.kind = kindOfTool[message.Params.Name]; t.kind == create {
		t.template, _ = message.Params.Arguments["template"].(string)
		labels, _ := message.Params.Arguments["host_labels"].(map[string]any)
		for key, value := range labels {
			if text, ok := value.(string); ok {
				t.labels = with(t.labels, key, text)
			}
		}
	}
	return nil
}

// peek reads a body, at most a byte more than maxPeek, as far as its project has memory for it.
func (x *Router) peek(r *http.Request, project string) ([]byte, error) {
	hold := func(context.Context, int64) error { return nil }
	if x.o.BodyMemory != nil && project != "" { // of a forwarded request, the first host has done it
		hold = x.o.BodyMemory(r, project)
	}
	var b bytes.Buffer
	for step := int64(firstPeek); ; step = min(int64(b.Len()), maxPeek+1-int64(b.Len())) {
		if step == 0 {
			return b.Bytes(), nil
		}
		if err := hold(r.Context(), step*peekFactor); err != nil {
			return nil, err
		}
		switch _, err := io.CopyN(&b, r.Body, step); {
		case errors.Is(err, io.EOF):
			return b.Bytes(), nil
		case err != nil:
			return nil, bothy.Errorf(bothy.CodeInvalid, "the body arrived incomplete").WithHint("Send as many bytes as Content-Length says.").Because(err)
		}
	}
}

// readCreate determines from a request for a sandbox what it needs of its host. Each API has its own
// fields. What cannot be read is left to the API, which reports it.
func (x *Router) readCreate(r *http.Request, body []byte, t *target, project string) {
	var asked struct {
		SnapshotID string            `json:"snapshot_id"`
		Template   string            `json:"template"`
		HostLabels map[string]string `json:"host_labels"`
		// These are of E2B's clients.
		TemplateID string            `json:"templateID"`
		Metadata   map[string]string `json:"metadata"`
	}
	if json.Unmarshal(body, &asked) != nil {
		return
	}
	switch {
	case r.URL.Path == containersPath:
		t.template, t.labels = x.o.Containers, asked.HostLabels
	case strings.HasPrefix(r.URL.Path, "/v1/"):
		t.template, t.snapshot, t.labels = asked.Template, asked.SnapshotID, asked.HostLabels
	default:
		if text := asked.Metadata[bothy.HostLabelsKey]; text != "" {
			t.labels, _ = bothy.ParseHostLabels(text)
		}
		if t.template = asked.TemplateID; x.o.Origin != nil {
			t.template, t.snapshot = x.o.Origin(r.Context(), project, asked.TemplateID)
		}
	}
	if !snapshotID.MatchString(t.snapshot) {
		t.snapshot = ""
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// toSandbox forwards a request to the host that has a sandbox.
func (x *Router) toSandbox(w http.ResponseWriter, r *http.Request, t target, c Caller, peer *Peer) bool {
	if x.o.Here(t.sandbox) {
		return false
	}
	if peer == nil {
		if k, ok := x.remembered(t.sandbox); ok {
			return x.passOr(w, r, t, c, store.Ownership{Host: k.host, Address: k.address}, func() bool { return x.toOwner(w, r, t, c, nil) })
		}
	}
	return x.toOwner(w, r, t, c, peer)
}

// toOwner forwards a request to the host that has a sandbox, by the database. If no host has it,
// one claims it.
func (x *Router) toOwner(w http.ResponseWriter, r *http.Request, t target, c Caller, peer *Peer) bool {
	for try := range maxClaims {
		if try > 0 && !pause(r.Context(), claimPause<<try) {
			return true // the caller left
		}
		o, err := x.o.Hosts.SandboxHost(r.Context(), t.sandbox)
		if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound {
			return false
		}
		if err != nil {
			x.o.Fail(w, r, err)
			return true
		}
		again := t.kind == restart && o.Sandbox.Ended() && (o.Host == "" || o.Dead)
		if (o.Host != "" || o.Sandbox.Ended()) && !again {
			return x.owned(w, r, t, c, peer, o)
		}
		// The sandbox has no host. The first to claim it owns it.
		if peer == nil {
			if x.o.May != nil && !x.o.May(r, t.sandbox, c.Owner) {
				return false // it is refused here, and nothing is claimed for it
			}
			to, ok, err := x.other(r.Context(), t.sandbox)
			if err != nil {
				x.o.Fail(w, r, err)
				return true
			}
			if ok {
				return x.pass(w, r, t, c, store.Ownership{Host: to.Name, Address: to.Address})
			}
		}
		if ok, err := x.o.Hosts.ClaimSandbox(r.Context(), t.sandbox); err != nil {
			x.o.Fail(w, r, err)
			return true
		} else if ok {
			x.o.Log.Info("claimed a sandbox without a host", "sandbox", t.sandbox)
			if x.o.Claimed != nil {
				x.o.Claimed(t.sandbox)
			}
			return false
		}
	}
	x.o.Fail(w, r, elsewhere("sandbox "+t.sandbox))
	return true
}

// MayTake reports whether this host may take a sandbox that has no host.
func (x *Router) MayTake() bool { return x.mayTake() }

// owned forwards a request to the owner that the database has now.
func (x *Router) owned(w http.ResponseWriter, r *http.Request, t target, c Caller, peer *Peer, o store.Ownership) bool {
	switch {
	case o.Host == x.o.Hosts.Self(), o.Host == "", o.Sandbox.Ended() && (o.Dead || peer != nil):
		return false
	case o.Dead && t.kind == remove:
		return false // any host may end it, once it has checked that the caller may
	case peer != nil:
		// The forwarding host used a stale owner. It reads the database and tries again.
		x.o.Fail(w, r, elsewhere("what this request is about"))
		return true
	case o.Dead:
		e := bothy.Errorf(bothy.CodeStore, "the host %s is dead, and only it has the snapshot of this sandbox", o.Host).
			WithHint("Ask the operator to start that host again, or delete the sandbox and create another.")
		e.RetryAfter = time.Minute
		x.o.Fail(w, r, e)
		return true
	}
	return x.pass(w, r, t, c, o)
}

func elsewhere(what string) error {
	e := bothy.Errorf(bothy.CodeMisdirected, "%s is now on another host", what).WithHint("Try again.")
	e.RetryAfter = time.Second
	return e
}

func (x *Router) toSnapshot(w http.ResponseWriter, r *http.Request, t target, c Caller, peer *Peer) bool {
	sandbox, o, err := x.o.Hosts.SnapshotHost(r.Context(), t.snapshot)
	if bothy.ErrorCode(err) == bothy.CodeSnapshotNotFound {
		return false
	}
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	if o.Host == "" && o.Sandbox != "" && !o.Sandbox.Ended() {
		t.sandbox = sandbox
		return x.toSandbox(w, r, t, c, peer)
	}
	if (o.Dead || t.kind == create && x.o.Memory != nil) && x.o.Fetchable != nil {
		fetchable, err := x.o.Fetchable(r.Context(), t.snapshot)
		if err != nil {
			x.o.Fail(w, r, err)
			return true
		}
		if fetchable && peer == nil && t.kind == create {
			return x.placeCopy(w, r, t, c, o)
		}
		if fetchable && (o.Dead || bothy.MayGoElsewhere(r.Context())) {
			return false
		}
	}
	o.Sandbox = "" // the files of an ended sandbox are still on its host
	return x.owned(w, r, t, c, peer, o)
}

func (x *Router) toDuty(w http.ResponseWriter, r *http.Request, c Caller) bool {
	o, err := x.o.Hosts.DutyHost(r.Context(), DutyAll)
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	if o.Host == "" || o.Dead {
		e := bothy.Errorf(bothy.CodeStore, "no host has taken over the webhooks and agents yet").WithHint("Try again in a few seconds.")
		e.RetryAfter = 3 * time.Second
		x.o.Fail(w, r, e)
		return true
	}
	return x.owned(w, r, target{}, c, nil, o)
}

func (x *Router) remembered(id string) (known, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, ok := x.known[id]
	return k, ok && time.Since(k.at) < knownFor
}

func (x *Router) remember(id string, o store.Ownership) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.known) >= maxKnown {
		clear(x.known)
	}
	x.known[id] = known{o.Host, o.Address, time.Now()}
}

func (x *Router) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.known, id)
}

// errAgain means that nothing was done and another host should be asked.
var errAgain = errors.New("the host refused the request; ask another")

// pass has another host answer. If that host refuses, it looks up the owner once more. It
// returns false only if this host turns out to be the owner.
func (x *Router) pass(w http.ResponseWriter, r *http.Request, t target, c Caller, o store.Ownership) bool {
	return x.passOr(w, r, t, c, o, nil)
}

// passOr is pass, but orphan answers if the request was not sent and the database says that the
// host is dead, or that none has what it is about.
func (x *Router) passOr(w http.ResponseWriter, r *http.Request, t target, c Caller, o store.Ownership, orphan func() bool) bool {
	again := replayable(r)
	err := x.send(w, r, t, c, o, false)
	if err == nil {
		return true
	}
	x.forget(t.sandbox)
	if !errors.Is(err, errAgain) || !again(r) {
		x.o.Fail(w, r, unanswered(o.Host, err))
		return true
	}
	now, ferr := x.ownerNow(r.Context(), t)
	switch {
	case ferr != nil:
		x.o.Fail(w, r, ferr)
	case now.Host == x.o.Hosts.Self():
		return false
	case (now.Host == "" || now.Dead) && orphan != nil:
		return orphan()
	case now.Host == "" || now.Dead || now == o:
		x.o.Fail(w, r, unanswered(o.Host, err))
	default:
		if err = x.send(w, r, t, c, now, false); err != nil {
			x.o.Fail(w, r, unanswered(now.Host, err))
		}
	}
	return true
}

func (x *Router) ownerNow(ctx context.Context, t target) (o store.Ownership, err error) {
	switch {
	case t.sandbox != "":
		o, err = x.o.Hosts.SandboxHost(ctx, t.sandbox)
	case t.snapshot != "":
		_, o, err = x.o.Hosts.SnapshotHost(ctx, t.snapshot)
	default:
		o, err = x.o.Hosts.DutyHost(ctx, DutyAll)
	}
	o.Sandbox = ""
	return o, err
}

// unanswered is the error for a host that did not answer.
func unanswered(host string, err error) error {
	e := bothy.Errorf(bothy.CodeStore, "the host %s, which must answer this request, does not respond", host).
		WithHint("Try again in a few seconds. If the request changes something, use the same Idempotency-Key: it may have taken effect.").Because(err)
	e.RetryAfter = 3 * time.Second
	return e
}

// replayable prepares a request to be sent twice. It returns a function that restores the body,
// and reports whether that was possible.
func replayable(r *http.Request) (again func(*http.Request) bool) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return func(*http.Request) bool { return true }
	}
	if r.GetBody == nil && r.ContentLength > 0 && r.ContentLength <= maxReplay {
		if body, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength)); err == nil {
			rest := r.Body
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			r.Body = struct {
				io.Reader
				io.Closer
			}{bytes.NewReader(body), rest}
		}
	}
	if r.GetBody == nil {
		// The other host accepts or refuses before it asks for the body.
		r.Header.Set("Expect", "100-continue")
		read := &watchedBody{ReadCloser: r.Body, left: r.ContentLength}
		r.Body = read
		return func(*http.Request) bool { return !read.began.Load() }
	}
	return func(r *http.Request) bool {
		body, err := r.GetBody()
		r.Body = body
		return err == nil
	}
}

// send has a host answer. It returns errAgain if the host refused before doing anything: it
// does not have the sandbox or, for a new one, has no room.
func (x *Router) send(w http.ResponseWriter, r *http.Request, t target, c Caller, o store.Ownership, place bool) (err error) {
	origin := bothy.OriginFrom(r.Context())
	proxy := &httputil.ReverseProxy{
		Transport: x.transport.to(o.Host, o.Address), FlushInterval: -1, BufferPool: copies{},
		ErrorLog: slog.NewLogLogger(x.o.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "https", Host: o.Host, Path: p.In.URL.Path, RawPath: p.In.URL.RawPath, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = p.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := p.In.Header[name]; ok {
					p.Out.Header[name] = v
				}
			}
			h := p.Out.Header
			dropPeerHeaders(h)
			describe(h, origin, r.RemoteAddr)
			if c.TokenID != "" {
				h.Set(headerProject, c.Project)
				h.Set(headerToken, c.TokenID)
			}
			if place {
				h.Set(headerPlace, "1")
			}
			if t.alone {
				h.Set(headerAlone, "1")
				h.Del(headerSession)
			}
		},
		ModifyResponse: func(res *http.Response) error {
			left := place && res.Header.Get(headerLeft) != ""
			res.Header.Del(headerLeft)
			if no := refused(res, place); no != nil {
				return no
			}
			if left || t.buildID != "" && res.StatusCode == http.StatusNotFound {
				return errAgain
			}
			switch {
			case t.sandbox == "" || place:
			case res.StatusCode == http.StatusServiceUnavailable:
				// The host may have lost the database, and be given up meanwhile.
				x.forget(t.sandbox)
			default:
				x.remember(t.sandbox, o)
			}
			for _, name := range []string{"X-Request-Id", "X-Content-Type-Options", "Cache-Control"} {
				res.Header.Del(name) // this host sets its own
			}
			if res.ContentLength > peerBuffer {
				res.Body = bulk{res.Body}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, e error) {
			if err = e; unsent(e) {
				err = errors.Join(errAgain, e)
			}
		},
	}
	proxy.ServeHTTP(w, r)
	if o.Host != x.o.Hosts.Self() {
		x.o.Counts.sent(place, err == nil, errors.Is(err, errAgain))
	}
	return err
}

// bulk is the body of a response of known length. It is read in large pieces instead of one TLS
// record at a time.
type bulk struct{ io.ReadCloser }

func (b bulk) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = b.ReadCloser.Read(p[n:])
		n += more
	}
	return n, err
}

// copies is the pool of buffers for copying responses.
type copies struct{}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, peerBuffer); return &b }}

// Get implements httputil.BufferPool.
func (copies) Get() []byte { return *copyBuffers.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (copies) Put(b []byte) { copyBuffers.Put(&b) }

// refusal is an errAgain with what the host said.
type refusal struct{ said *bothy.Error }

func (r *refusal) Error() string { return errAgain.Error() + ": " + r.said.Error() }

func (r *refusal) Unwrap() error { return errAgain }

// refused returns a host's refusal of a request that another may accept, or nil.
func refused(res *http.Response, place bool) error {
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") {
		return nil
	}
	if res.StatusCode != http.StatusMisdirectedRequest && !(place && (res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusNotFound)) {
		return nil
	}
	body, p, err := readProblem(res)
	if err != nil {
		return nil
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	no := &refusal{bothy.Errorf(p.Code, "%s", p.Detail).WithHint("%s", p.Hint)}
	switch p.Code {
	case bothy.CodeMisdirected:
		return no
	case bothy.CodeCapacity, bothy.CodeShuttingDown, bothy.CodeTemplateNotFound:
		if place {
			return no
		}
	}
	return nil
}

// pause waits, and reports false if the caller leaves meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
