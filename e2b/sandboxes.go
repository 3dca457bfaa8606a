package e2b

import (
	"context"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// envdVersion is the agent version that clients see: with it they use all features.
const envdVersion = "0.6.4"

// The default time-outs of sandboxes in seconds, by the version of the call.
const (
	lifeV1 = 15
	lifeV2 = 300
)

// Marks are kept in a sandbox's metadata, where E2B's clients do not see them.
const (
	markPrefix   = "bothy.e2b."
	markPrivate  = markPrefix + "private_ports" // "true" if ports need the traffic token
	markName     = markPrefix + "template"      // the template's name as requested
	markInternet = markPrefix + "internet"      // allow_internet_access, as requested
	markNetwork  = markPrefix + "network"       // the network, as requested
	markKey      = markPrefix + "idempotency"   // the Idempotency-Key of its request
)

// newSandbox is a request for a sandbox, in both versions.
type newSandbox struct {
	TemplateID      string                  `json:"templateID"`
	Timeout         *int                    `json:"timeout"`
	AutoPause       bool                    `json:"autoPause"`
	AutoPauseMemory *bool                   `json:"autoPauseMemory"`
	AutoResume      *struct{ Enabled bool } `json:"autoResume"`
	Internet        *bool                   `json:"allow_internet_access"`
	Network         *network                `json:"network"`
	Metadata        map[string]string       `json:"metadata"`
	Env             map[string]string       `json:"envVars"`
	MCP             map[string]any          `json:"mcp"`
	IAM             *struct {
		Tokens map[string]any `json:"tokens"`
	} `json:"iam"`
	Volumes []map[string]any `json:"volumeMounts"`
}

// sandbox is the view of a sandbox for a client that may use it.
type sandbox struct {
	TemplateID   string `json:"templateID"`
	SandboxID    string `json:"sandboxID"`
	Alias        string `json:"alias,omitempty"`
	ClientID     string `json:"clientID"`
	EnvdVersion  string `json:"envdVersion"`
	AgentToken   string `json:"envdAccessToken,omitempty"`
	TrafficToken string `json:"trafficAccessToken,omitempty"`
	Domain       string `json:"domain,omitempty"`
}

// listed is a sandbox in a list, and detail a single one.
type listed struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	Alias       string            `json:"alias,omitempty"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	State       string            `json:"state"`
	Metadata    map[string]string `json:"metadata"`
}

type detail struct {
	listed
	AgentToken string    `json:"envdAccessToken,omitempty"`
	Domain     string    `json:"domain,omitempty"`
	Internet   *bool     `json:"allowInternetAccess"`
	Network    *network  `json:"network,omitempty"`
	Lifecycle  lifecycle `json:"lifecycle"`
	PauseMode  string    `json:"pauseMode,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// clientID is a legacy suffix that old clients append to a sandbox's id.
const clientID = "bothy"

func (d *Door) sandboxRoutes() []Route {
	write, look := bothy.ScopeSandboxesWrite, bothy.ScopeSandboxesRead
	return []Route{
		route("POST /sandboxes", "create-sandbox", write, d.create(lifeV1)),
		route("POST /v2/sandboxes", "create-sandbox", write, d.create(lifeV2)),
		route("GET /sandboxes", "list-sandboxes", look, d.listV1),
		route("GET /v2/sandboxes", "list-sandboxes", look, d.listV2),
		route("GET /sandboxes/{sandboxID}", "get-sandbox", look, d.get),
		route("DELETE /sandboxes/{sandboxID}", "kill-sandbox", write, d.kill),
		route("POST /sandboxes/{sandboxID}/timeout", "set-timeout", write, d.setTimeout),
		route("POST /sandboxes/{sandboxID}/refreshes", "refresh-sandbox", write, d.refresh),
	}
}

// id returns the sandbox's id in a path.
func (d *Door) id(r *http.Request) string {
	id := bareID(r.PathValue("sandboxID"))
	d.Server.Note(r, id, "", "")
	return id
}

// bareID removes the suffix that old clients append to an id.
func bareID(id string) string {
	id, _, _ = strings.Cut(id, "-")
	return id
}

func (d *Door) create(life int) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := d.checkVersion(r); err != nil {
			return err
		}
		var in newSandbox
		if err := read(w, r, &in); err != nil {
			return err
		}
		req, err := d.request(r.Context(), in, life)
		if err != nil {
			return err
		}
		sb, err := d.createOnce(r, req)
		if err != nil {
			return err
		}
		d.Server.Note(r, sb.ID, "", "")
		return reply(w, http.StatusCreated, d.shown(r.Context(), sb))
	}
}

// request translates a request for a sandbox.
func (d *Door) request(ctx context.Context, in newSandbox, life int) (req bothy.SandboxCreate, err error) {
	if in.TemplateID == "" {
		return req, invalid("templateID is missing")
	}
	if err := in.check(); err != nil {
		return req, err
	}
	req = bothy.SandboxCreate{Env: in.Env, AutoResume: in.AutoResume != nil && in.AutoResume.Enabled, Metadata: maps.Clone(in.Metadata)}
	if err := options(in.Metadata, &req); err != nil {
		return req, err
	}
	if req.TimeoutSeconds, err = seconds(in.Timeout, life); err != nil {
		return req, err
	}
	// A sandbox from a snapshot does not inherit this one.
	req.OnTimeout = bothy.TimeoutTerminate
	if in.AutoPause {
		req.OnTimeout = bothy.TimeoutPause
	}
	if req.Metadata == nil {
		req.Metadata = map[string]string{}
	}
	req.Metadata[markName] = in.TemplateID
	if req.Network, err = policyOf(in.Internet, in.Network); err != nil {
		return req, err
	}
	if in.Network != nil {
		if req.Secrets, err = in.Network.secretsOf(); err != nil {
			return req, err
		}
	}
	in.mark(req.Metadata)
	req.Template, req.SnapshotID, err = d.Origin(ctx, in.TemplateID)
	return req, err
}

// check refuses settings that have no equivalent here.
func (in *newSandbox) check() error {
	switch {
	case in.AutoPause && in.AutoPauseMemory != nil && !*in.AutoPauseMemory:
		return unsupported("a sandbox cannot be paused without its memory when its time is up (autoPauseMemory)").
			WithHint("Leave it out, or pause it yourself with memory: false")
	case len(in.MCP) > 0:
		return unsupported("the MCP gateway (mcp) does not exist here").WithHint("This server speaks MCP itself, see docs/mcp.md")
	case in.IAM != nil && len(in.IAM.Tokens) > 0:
		return unsupported("workload identity (iam) does not exist here")
	case len(in.Volumes) > 0:
		return unsupported("volumes (volumeMounts) do not exist here")
	}
	return nil
}

// seconds is a time-out in seconds. There is always a limit.
func seconds(given *int, otherwise int) (*int, error) {
	if given == nil {
		return &otherwise, nil
	}
	if *given < 0 || *given > bothy.MaxTimeoutSeconds {
		return nil, invalid("timeout is %d; give from 0 to %d seconds", *given, bothy.MaxTimeoutSeconds)
	}
	t := max(*given, 1)
	return &t, nil
}

// shown is a sandbox as shown to its creator.
func (d *Door) shown(ctx context.Context, sb *bothy.Sandbox) sandbox {
	s := sandbox{
		TemplateID: templateOf(sb), SandboxID: sb.ID, Alias: sb.Metadata[markName], ClientID: clientID,
		EnvdVersion: envdVersion, Domain: d.config.Domain(),
	}
	s.AgentToken, s.TrafficToken = d.tokens(ctx, sb)
	return s
}

// tokens are those of a caller who may use the sandbox.
func (d *Door) tokens(ctx context.Context, sb *bothy.Sandbox) (agent, traffic string) {
	c := bothy.CallerFrom(ctx)
	if !c.Can(bothy.ScopeSandboxesWrite) {
		return "", ""
	}
	return d.token(tokenForAgent, c.TokenID, sb.ID), d.token(tokenForTraffic, c.TokenID, sb.ID)
}

func templateOf(sb *bothy.Sandbox) string { return sb.Template }

// stateOf is a sandbox's state in E2B's terms, or "" if there is no equivalent: it does not
// exist yet, or no longer.
func stateOf(s bothy.State) string {
	switch s {
	case bothy.StateRunning, bothy.StatePausing:
		return "running"
	case bothy.StatePaused, bothy.StateResuming:
		return "paused"
	}
	return ""
}

func (d *Door) listedOf(sb *bothy.Sandbox) listed {
	l := listed{
		TemplateID: templateOf(sb), SandboxID: sb.ID, Alias: sb.Metadata[markName], ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: sb.CreatedAt, EndAt: d.now().Add(farAhead).UTC(), CPUCount: int(math.Ceil(sb.CPU)), MemoryMB: sb.MemoryMB,
		DiskSizeMB: sb.DiskMB, State: stateOf(sb.State), Metadata: own(sb.Metadata),
	}
	if sb.StartedAt != nil {
		l.StartedAt = *sb.StartedAt
	}
	if sb.ExpiresAt != nil {
		l.EndAt = *sb.ExpiresAt
	}
	return l
}

// own is metadata without E2B's marks.
func own(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if !strings.HasPrefix(k, markPrefix) {
			out[k] = v
		}
	}
	return out
}

func (d *Door) detailOf(ctx context.Context, sb *bothy.Sandbox) detail {
	x := detail{listed: d.listedOf(sb), Domain: d.config.Domain(), Lifecycle: lifecycle{OnTimeout: "kill", AutoResume: sb.AutoResume}}
	x.AgentToken, _ = d.tokens(ctx, sb)
	if sb.OnTimeout == bothy.TimeoutPause {
		x.Lifecycle.OnTimeout = "pause"
	}
	if b, err := strconv.ParseBool(sb.Metadata[markInternet]); err == nil {
		x.Internet = &b
	}
	x.Network = networkOf(sb)
	return x
}

// found returns the caller's sandbox if it is one in E2B's eyes.
func (d *Door) found(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, err := d.Sandboxes.Get(ctx, id)
	if bothy.ErrorCode(err) == bothy.CodeSandboxNotFound || err == nil && stateOf(sb.State) == "" {
		return nil, notFound(id)
	}
	return sb, err
}

func (d *Door) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := d.found(r.Context(), d.id(r))
	if err != nil {
		return err
	}
	x := d.detailOf(r.Context(), sb)
	if sb.State == bothy.StatePaused && sb.SnapshotID != "" {
		if n, err := d.Snapshots.Snapshot(r.Context(), sb.SnapshotID); err == nil {
			x.PauseMode = map[bothy.SnapshotKind]string{bothy.SnapshotMemory: "full", bothy.SnapshotFiles: "filesystem"}[n.Kind]
		}
	}
	return reply(w, http.StatusOK, x)
}

func (d *Door) kill(w http.ResponseWriter, r *http.Request) error {
	id := d.id(r)
	if _, err := d.found(r.Context(), id); err != nil {
		return err
	}
	if err := d.Sandboxes.Terminate(r.Context(), id); err != nil {
		return err
	}
	return done(w)
}

func (d *Door) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int `json:"timeout"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Timeout == nil {
		return invalid("timeout is missing")
	}
	t, err := seconds(in.Timeout, 0)
	if err != nil {
		return err
	}
	return d.update(w, r, bothy.SandboxUpdate{TimeoutSeconds: t})
}

func (d *Door) update(w http.ResponseWriter, r *http.Request, u bothy.SandboxUpdate) error {
	id := d.id(r)
	if _, err := d.found(r.Context(), id); err != nil {
		return err
	}
	if _, err := d.Sandboxes.Update(r.Context(), id, u); err != nil {
		return err
	}
	return done(w)
}

// refresh extends a sandbox's time, and never shortens it.
func (d *Door) refresh(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Duration int `json:"duration"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Duration < 0 || in.Duration > 3600 {
		return invalid("duration is %d; give from 0 to 3600 seconds", in.Duration)
	}
	id := d.id(r)
	sb, err := d.found(r.Context(), id)
	if err == nil {
		_, err = d.extend(r.Context(), sb, in.Duration)
	}
	if err != nil {
		return err
	}
	return done(w)
}

// extend lets a sandbox run for at least this many seconds from now.
func (d *Door) extend(ctx context.Context, sb *bothy.Sandbox, seconds int) (*bothy.Sandbox, error) {
	if sb.ExpiresAt == nil || !sb.ExpiresAt.Before(d.now().Add(time.Duration(seconds)*time.Second)) {
		return sb, nil
	}
	return d.Sandboxes.Update(ctx, sb.ID, bothy.SandboxUpdate{TimeoutSeconds: &seconds})
}

// listV1 lists the running ones.
func (d *Door) listV1(w http.ResponseWriter, r *http.Request) error {
	return d.list(w, r, []string{"running"}, 1000)
}

func (d *Door) listV2(w http.ResponseWriter, r *http.Request) error {
	return d.list(w, r, []string{"running", "paused"}, 100)
}

var statesOf = map[string][]bothy.State{
	"running": {bothy.StateRunning, bothy.StatePausing},
	"paused":  {bothy.StatePaused, bothy.StateResuming},
}

// list answers with a page. Filters that the store does not support are applied here, to
// everything it lists, which is limited by how much a project may have.
func (d *Door) list(w http.ResponseWriter, r *http.Request, states []string, limit int) error {
	f, want, err := filterOf(r.URL.Query(), states)
	if err != nil {
		return err
	}
	if limit, err = number(r.URL.Query(), "limit", limit, 1, 1000); err != nil {
		return err
	}
	all, err := everyPage(func(cursor string) (bothy.Page[*bothy.Sandbox], error) {
		f.Cursor = cursor
		return d.Sandboxes.List(r.Context(), f)
	})
	if err != nil {
		return err
	}
	out := []listed{}
	for _, sb := range all {
		if l := d.listedOf(sb); want(l) {
			out = append(out, l)
		}
	}
	if r.URL.Query().Get("order") == "asc" {
		slices.Reverse(out)
	}
	page, next := cut(out, r.URL.Query().Get("nextToken"), limit, func(l listed) string { return l.SandboxID })
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	return reply(w, http.StatusOK, page)
}

// filterOf parses the filter of a list.
func filterOf(q url.Values, states []string) (f bothy.SandboxFilter, want func(listed) bool, err error) {
	f.Limit = 1000
	if given := split(q["state"]); len(given) > 0 {
		states = given
	}
	for _, s := range states {
		if statesOf[s] == nil {
			return f, nil, invalid("state: %q is neither running nor paused", s)
		}
		f.States = append(f.States, statesOf[s]...)
	}
	if text := q.Get("metadata"); text != "" {
		if f.Metadata, err = metadataOf(text); err != nil {
			return f, nil, err
		}
	}
	var after time.Time
	if text := q.Get("startedAfter"); text != "" {
		if after, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return f, nil, invalid("startedAfter: %q is not a time as in RFC 3339", text)
		}
	}
	if o := q.Get("order"); o != "" && o != "asc" && o != "desc" {
		return f, nil, invalid("order: %q is neither asc nor desc", o)
	}
	template := q.Get("template")
	return f, func(l listed) bool {
		return l.Metadata[bothy.BuildKey] == "" && !l.StartedAt.Before(after) && (template == "" || l.TemplateID == template || l.Alias == template)
	}, nil
}

// metadataOf parses a filter: a query in a query, whose parts may be escaped once more.
func metadataOf(text string) (map[string]string, error) {
	q, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid("metadata: %q is not of the form key=value&key=value", text)
	}
	m := map[string]string{}
	for k := range q {
		key, err1 := url.PathUnescape(k)
		value, err2 := url.PathUnescape(q.Get(k))
		if err1 != nil || err2 != nil {
			return nil, invalid("metadata: %q is not escaped as it should be", text)
		}
		m[key] = value
	}
	return m, nil
}
