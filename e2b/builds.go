package e2b

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/google/uuid"
)

const (
	// maxBuilds limits the builds of a project that are remembered, of which the oldest are
	// forgotten first, and maxBuildLog the bytes of the log of each.
	maxBuilds   = 50
	maxBuildLog = 256 << 10
	// maxFiles limits the uploads of a project that are remembered, and maxTags the tags of a
	// build.
	maxFiles = 500
	maxTags  = 32
	// uploadLife is how long an address for uploading files is valid.
	uploadLife = time.Hour
	// logPage is how many lines one answer holds.
	logPage = 100

	tokenForUpload = "upload"
)

// builds are those that clients have requested: E2B assigns a build's id before the client says
// what to build. The ids are lost when the server ends; the builds themselves continue.
type builds struct {
	mu  sync.Mutex
	all map[string]*templateBuild
	// of are the builds of each project, the oldest first, and files its uploads by hash.
	of    map[string][]string
	files map[string]map[string]string
}

// templateBuild is one build.
type templateBuild struct {
	id, name, project string
	tags              []string // as E2B's API spells it; never empty
	cpu, memoryMB     int      // of sandboxes in which a program already runs
	ends              []int    // how many of our steps are done after each of the client's

	mu      sync.Mutex
	started bool
	lines   []buildLine
	logged  int // bytes
	state   bothy.BuildState
	reason  string
	step    string
}

type buildLine struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	Level     string    `json:"level"`
	Step      string    `json:"step,omitempty"`
}

func (d *Door) buildRoutes() []Route {
	look, write := bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite
	upload := route("PUT /templates/upload/{token}", "upload-files", write, d.upload)
	upload.Hold = d.holdUpload
	return []Route{
		route("POST /v3/templates", "request-build", write, d.requestBuild),
		route("POST /v2/templates", "request-build", write, d.requestBuild),
		route("GET /templates/{templateID}/files/{hash}", "upload-link", write, d.uploadLink),
		upload,
		route("POST /v2/templates/{templateID}/builds/{buildID}", "start-build", write, d.startBuild),
		route("GET /templates/{templateID}/builds/{buildID}/status", "build-status", look, d.buildStatus),
		route("GET /templates/{templateID}/builds/{buildID}/logs", "build-logs", look, d.buildLogs),
	}
}

// requestBuild gives a build its id.
func (d *Door) requestBuild(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name  string   `json:"name"`
		Alias string   `json:"alias"`
		Tags  []string `json:"tags"`
		CPU   int      `json:"cpuCount"`
		MemMB int      `json:"memoryMB"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	asked := cmp.Or(in.Name, in.Alias)
	name, err := d.ownName(asked)
	if err != nil {
		return err
	}
	tags := tagsOf(asked, in.Tags)
	if len(tags) > maxTags {
		return invalid("a build has at most %d tags, and this has %d", maxTags, len(tags))
	}
	for _, tag := range tags {
		if !bothy.ValidTemplateName(name + ":" + tagHere(tag)) {
			return invalid("%q cannot be the name of a template: use small letters, digits, dots, dashes and underscores, and :TAG behind", name+":"+tag)
		}
	}
	b := &templateBuild{id: uuid.NewString(), name: name, tags: tags, cpu: in.CPU, memoryMB: in.MemMB, project: bothy.CallerFrom(r.Context()).ProjectID}
	d.builds.add(b)
	d.Server.Note(r, "", name, "")
	return reply(w, http.StatusAccepted, map[string]any{
		"templateID": name, "buildID": b.id, "public": false, "names": []string{name}, "tags": tags, "aliases": []string{name},
	})
}

// tagsOf returns the tags of a build: that of its name and those listed in addition, or the
// default one if there is none.
func tagsOf(name string, more []string) []string {
	var tags []string
	if _, tag, ok := strings.Cut(name, ":"); ok {
		tags = append(tags, tag)
	}
	for _, tag := range more {
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	if len(tags) == 0 {
		tags = append(tags, defaultTag)
	}
	return tags
}

func (b *builds) add(x *templateBuild) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all, b.of = map[string]*templateBuild{}, map[string][]string{}
	}
	b.all[x.id] = x
	own := append(b.of[x.project], x.id)
	if len(own) > maxBuilds {
		delete(b.all, own[0])
		own = own[1:]
	}
	b.of[x.project] = own
}

// file returns what a project uploaded under a hash, or "".
func (b *builds) file(project, hash string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[project][hash]
}

// addFile remembers an upload. If a project has too many, its others are forgotten: its client
// then uploads them again.
func (b *builds) addFile(project, hash, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files == nil {
		b.files = map[string]map[string]string{}
	}
	if own := b.files[project]; own == nil || len(own) >= maxFiles {
		b.files[project] = map[string]string{}
	}
	b.files[project][hash] = id
}

// log adds a line to a build's log, unless that is full. The caller holds the build's lock.
func (b *templateBuild) log(l buildLine) {
	if b.logged > maxBuildLog {
		return
	}
	if b.logged += len(l.Message) + len(l.Step); b.logged > maxBuildLog {
		l.Message, l.Step = "the rest of the log is left out here; `bothy template logs` shows all of it", ""
	}
	b.lines = append(b.lines, l)
}

// buildOf finds the build that a request names.
func (d *Door) buildOf(r *http.Request) (*templateBuild, error) {
	d.builds.mu.Lock()
	defer d.builds.mu.Unlock()
	b := d.builds.all[r.PathValue("buildID")]
	if b == nil || b.project != bothy.CallerFrom(r.Context()).ProjectID || b.name != bareName(r.PathValue("templateID")) {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no build %q of this template", r.PathValue("buildID")).
			WithHint("Builds are known by these ids until the server restarts; GET /v1/templates/builds lists all of them")
	}
	return b, nil
}

// uploadLink says whether files with this hash exist, and if not, where to upload them. The
// upload needs no key: the signed address is valid for an hour.
func (d *Door) uploadLink(w http.ResponseWriter, r *http.Request) error {
	c, hash := bothy.CallerFrom(r.Context()), r.PathValue("hash")
	if !validHash(hash) {
		return invalid("%q is not the SHA-256 of files", hash)
	}
	present := d.builds.file(c.ProjectID, hash) != ""
	scheme := bothy.OriginFrom(r.Context()).Scheme
	if scheme == "" {
		scheme = "http"
	}
	subject := strings.Join([]string{
		base64.RawURLEncoding.EncodeToString([]byte(c.ProjectID)), hash, strconv.FormatInt(d.now().Add(uploadLife).Unix(), 10),
	}, "~")
	return reply(w, http.StatusCreated, map[string]any{
		"present": present, "url": fmt.Sprintf("%s://%s/templates/upload/%s", scheme, r.Host, d.token(tokenForUpload, c.TokenID, subject)),
	})
}

func validHash(s string) bool {
	return len(s) > 0 && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

var errUploadLink = bothy.Errorf(bothy.CodeUnauthenticated, "this upload address has expired, or was changed").
	WithHint("Begin the build again")

// uploadOf parses the token of an upload.
func (d *Door) uploadOf(token string) (project, keyID, hash string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(token), []byte(d.token(tokenForUpload, parts[0], parts[1]))) {
		return "", "", "", errUploadLink
	}
	fields := strings.Split(parts[1], "~")
	name, err := base64.RawURLEncoding.DecodeString(fields[0])
	if err != nil || len(fields) != 3 {
		return "", "", "", errUploadLink
	}
	until, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || d.now().Unix() > until {
		return "", "", "", errUploadLink
	}
	return string(name), parts[0], fields[1], nil
}

func (d *Door) holdUpload(r *http.Request, end func(error)) (*bothy.Caller, func(), error) {
	project, key, _, err := d.uploadOf(r.PathValue("token"))
	if err != nil {
		return nil, nil, err
	}
	return d.Keys.HoldID(r.Context(), project, key, end)
}

// UploadProject returns the project that an upload address is for, if it is valid.
func (d *Door) UploadProject(token string) string {
	project, _, _, err := d.uploadOf(token)
	if err != nil {
		return ""
	}
	return project
}

// HasBuild reports whether a client was given this id for a build here.
func (d *Door) HasBuild(id string) bool {
	d.builds.mu.Lock()
	defer d.builds.mu.Unlock()
	return d.builds.all[id] != nil
}

// upload stores files from a tar.
func (d *Door) upload(w http.ResponseWriter, r *http.Request) error {
	project, _, hash, err := d.uploadOf(r.PathValue("token"))
	if err != nil {
		return err
	}
	c, err := d.Builder.UploadContext(r.Context(), r.Body)
	if err != nil {
		return err
	}
	d.builds.addFile(project, hash, c.ID)
	w.WriteHeader(http.StatusOK)
	return nil
}

// startBuild translates what to build into a Dockerfile, and builds it.
func (d *Door) startBuild(w http.ResponseWriter, r *http.Request) error {
	b, err := d.buildOf(r)
	if err != nil {
		return err
	}
	var in buildStart
	if err := read(w, r, &in); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return bothy.Errorf(bothy.CodeConflict, "the build %s was started before", b.id)
	}
	req, err := d.translate(r.Context(), b, in)
	if err != nil {
		return err
	}
	d.Server.Note(r, "", b.name, "")
	ours, err := d.Builder.StartBuild(r.Context(), *req)
	if err != nil {
		return err
	}
	b.started, b.state = true, ours.State
	go d.follow(bothy.WithCaller(context.WithoutCancel(r.Context()), bothy.CallerFrom(r.Context())), b, ours.ID)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// follow collects a build's output until it has ended.
func (d *Door) follow(ctx context.Context, b *templateBuild, id string) {
	err := d.Builder.BuildLog(ctx, id, 0, func(_ int64, e bothy.BuildEvent) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		level := "info"
		if e.Error != "" {
			level = "error"
		}
		if text := strings.TrimSpace(e.Step + " " + e.Message + e.Error); text != "" {
			b.log(buildLine{d.now().UTC(), text, level, e.Step})
		}
		return nil
	})
	ours, gerr := d.Builder.Build(ctx, id)
	var terr error
	if gerr == nil && ours.State == bothy.BuildSucceeded && len(b.tags) > 1 {
		terr = d.tagMore(ctx, b)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if terr != nil {
		b.state, b.reason = bothy.BuildFailed, "the template was built, but could not be tagged: "+terr.Error()
		return
	}
	if err = errors.Join(err, gerr); err != nil {
		b.state, b.reason = bothy.BuildFailed, "the build can no longer be followed: "+err.Error()
		return
	}
	b.state, b.step = ours.State, stepOf(b.ends, ours.Done)
	if b.reason = ours.Error; ours.Hint != "" {
		b.reason += ". " + ours.Hint
	}
	if ours.State == bothy.BuildCancelled && b.reason == "" {
		b.reason = "the build was cancelled"
	}
}

// E2B's names of what comes before and after a client's own steps, which have numbers. Its SDK for
// Python knows these two in every version that works here, fails on any other before 2.59.0, and
// ignores others from there on.
const (
	baseStep  = "base"
	finalStep = "finalize"
)

// stepOf is the client's step in which a build failed after so many of our own.
func stepOf(ends []int, done int) string {
	if done < ownSteps {
		return baseStep
	}
	for i, end := range ends {
		if done < end {
			return strconv.Itoa(i + 1)
		}
	}
	return finalStep
}

// tagMore adds the tags that are not part of the template's name.
func (d *Door) tagMore(ctx context.Context, b *templateBuild) error {
	var more []string
	for _, tag := range b.tags[1:] {
		more = append(more, tagHere(tag))
	}
	_, err := d.Templates.TagTemplate(ctx, b.ref(), more)
	return err
}

// ref is the name under which a template is built.
func (b *templateBuild) ref() string {
	return bothy.TemplateRef{Name: b.name, Tag: tagHere(b.tags[0])}.String()
}

// statusOf is the name of a state in E2B's API.
func statusOf(s bothy.BuildState) string {
	switch s {
	case "", bothy.BuildQueued:
		return "waiting"
	case bothy.BuildSucceeded:
		return "ready"
	case bothy.BuildFailed, bothy.BuildCancelled:
		return "error"
	}
	return "building"
}

func (d *Door) buildStatus(w http.ResponseWriter, r *http.Request) error {
	b, err := d.buildOf(r)
	if err != nil {
		return err
	}
	offset, err := number(r.URL.Query(), "logsOffset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	limit, err := number(r.URL.Query(), "limit", logPage, 1, logPage)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	status := statusOf(b.state)
	if b.started && status == "waiting" {
		status = "building"
	}
	x := map[string]any{
		"templateID": b.name, "buildID": b.id, "status": status, "logs": []string{}, "logEntries": linesOf(b.lines, offset, limit),
	}
	if status == "error" {
		x["reason"] = map[string]any{"message": b.reason, "step": b.step, "logEntries": []buildLine{}}
	}
	return reply(w, http.StatusOK, x)
}

func (d *Door) buildLogs(w http.ResponseWriter, r *http.Request) error {
	b, err := d.buildOf(r)
	if err != nil {
		return err
	}
	limit, err := number(r.URL.Query(), "limit", logPage, 1, logPage)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := linesOf(b.lines, 0, limit)
	if r.URL.Query().Get("direction") == "backward" {
		lines = linesOf(b.lines, max(0, len(b.lines)-limit), limit)
		slices.Reverse(lines)
	}
	return reply(w, http.StatusOK, map[string]any{"logs": lines})
}

// linesOf is a part of a log, never nil.
func linesOf(lines []buildLine, offset, limit int) []buildLine {
	part := lines[min(offset, len(lines)):]
	return append([]buildLine{}, part[:min(limit, len(part))]...)
}
