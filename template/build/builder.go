package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
	"github.com/bothy-dev/bothy/template/tree"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// metadataKey marks the sandboxes of builds.
const metadataKey = bothy.BuildKey

const (
	buildMemoryMB = 2048
	buildDiskMB   = 16384
	// maxAtOnce limits concurrent builds, and maxOfProject those of one project; others queue.
	maxAtOnce    = 12
	maxOfProject = 4
	// maxPerProject limits a project's running and queued builds.
	maxPerProject = 20
	// maxRecords limits a project's ended builds, and maxLogs their logs together: the oldest are
	// forgotten first.
	maxRecords = 1000
	maxLogs    = 256 << 20
	// keepRecords and contextLife are how long ended builds and contexts are kept.
	keepRecords = 7 * 24 * time.Hour
	contextLife = 24 * time.Hour
)

// Sandboxes runs the commands of builds. lifecycle implements it.
type Sandboxes interface {
	// StartFrom creates a sandbox from an image that need not be a template, with changes.
	StartFrom(ctx context.Context, req bothy.SandboxCreate, t *store.Template, files string) (*bothy.Sandbox, error)
	// SaveFiles writes a sandbox's changes, in the format that StartFrom takes.
	SaveFiles(ctx context.Context, id, path string) error
	ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error
	Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error)
	Processes(ctx context.Context, id string) ([]bothy.ProcessInfo, error)
	Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error
	DialPort(ctx context.Context, id string, port uint16) (net.Conn, error)
	FetchPort(req *http.Request, id string, port uint16) (*http.Response, error)
	CreateTemplate(ctx context.Context, id string, req bothy.TemplateCapture) (*bothy.Template, error)
	List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error)
	Terminate(ctx context.Context, id string) error
}

// Library has the templates that builds start from, and stores those that they make.
type Library interface {
	// LookupFor finds a template as a project sees it.
	LookupFor(ctx context.Context, project, name string) (*store.Template, error)
	Adopt(ctx context.Context, t *store.Template, image string) error
	// Untag removes a tag, even if something needs its image.
	Untag(ctx context.Context, name, tag string) error
	OpenImage(ctx context.Context, project, ref string, logins []bothy.RegistryLogin) (v1.Image, error)
	// Finish adds what sandboxes need to a tree, and WriteTree writes it as an image with a digest and
	// a size.
	Finish(t *tree.Tree, searchPath string) error
	WriteTree(t *tree.Tree, image string) (digest string, size int64, err error)
}

// Options configure a Builder.
type Options struct {
	// Dir stores records of builds and uploaded contexts. Cache stores layers, and should be on
	// the library's disk.
	Dir, Cache string
	// Unknown returns the error for a build that is unknown here, or nil for the usual one.
	// Optional.
	Unknown func(ctx context.Context, id string) error
	// CacheBytes limits the cache; 0 means 20 GB.
	CacheBytes int64
	Sandboxes  Sandboxes
	Files      bothy.FileService
	Library    Library
	// Plan returns a project's plan, which limits what builds request by default. Optional.
	Plan func(ctx context.Context, project string) (bothy.Plan, error)
	// Memory returns a context in which the files of a build take memory, until end is called.
	// Optional.
	Memory func(ctx context.Context, project string) (in context.Context, end func())
	// Bounded reports whether root in an engine's sandbox can neither mount nor change its
	// kernel, so that commands can share a sandbox. Optional: without it each command gets its
	// own.
	Bounded func(engine string) bool
	// MinFreeDisk is how many bytes of the host's disk builds leave free; 0 means none.
	MinFreeDisk int64
	// Seal and Open encrypt the secrets of queued builds.
	Seal func(plain []byte, bound string) ([]byte, error)
	Open func(sealed []byte, bound string) ([]byte, error)
	// CABundle contains additional certificates that every sandbox trusts.
	CABundle string
	// CheckNetwork returns the error that a gateway would return for a policy. Optional.
	CheckNetwork func(bothy.Network) error
	Log          *slog.Logger
}

// Builder implements bothy.TemplateBuilder.
type Builder struct {
	o     Options
	log   *slog.Logger
	cache *cache
	work  string
	slots chan struct{}
	turns turns
	// running counts the builds of each project.
	running turns
	// uploading counts the bytes of contexts that each project is uploading.
	uploading counts
	free      func(dir string) (int64, error)
	// maxFiles limits the entries of a context.
	maxFiles int64
	// large is held while a large context is read: its tree takes hundreds of MB of memory.
	large chan struct{}

	// resume is closed when builds may begin.
	resume chan struct{}

	background context.Context
	stop       context.CancelFunc
	wg         sync.WaitGroup

	mu     sync.Mutex
	builds map[string]*record
}

var _ bothy.TemplateBuilder = (*Builder)(nil)

// New opens the folders. Call Recover before starting builds, and Resume once the server is ready.
func New(o Options) (*Builder, error) {
	b := &Builder{
		o: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), cache: &cache{dir: o.Cache, max: cmp.Or(o.CacheBytes, 20<<30)},
		work: filepath.Join(o.Dir, "work"), slots: make(chan struct{}, maxAtOnce), free: disk.Free, maxFiles: maxContextFiles, large: make(chan struct{}, 1), resume: make(chan struct{}), builds: map[string]*record{},
	}
	b.background, b.stop = context.WithCancel(context.Background())
	if err := os.RemoveAll(b.work); err != nil {
		return nil, err
	}
	for _, d := range []string{b.work, b.contexts(), b.records()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	halves, _ := filepath.Glob(filepath.Join(b.contexts(), newPrefix+"*")) // of a killed server
	for _, half := range halves {
		if err := os.Remove(half); err != nil {
			return nil, err
		}
	}
	return b, os.MkdirAll(o.Cache, 0o700)
}

func (b *Builder) contexts() string { return filepath.Join(b.o.Dir, "contexts") }
func (b *Builder) records() string  { return filepath.Join(b.o.Dir, "records") }

// Close stops running builds. They start again in the next server's Recover.
func (b *Builder) Close() {
	b.stop()
	b.wg.Wait()
}

// StartBuild implements bothy.TemplateBuilder.
func (b *Builder) StartBuild(ctx context.Context, req bothy.BuildRequest) (*bothy.Build, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	text, recipe, err := b.check(ctx, caller.ProjectID, &req)
	if err != nil {
		return nil, err
	}
	req.Dockerfile = text
	same := keyOf(caller.ProjectID, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	open := 0
	for _, r := range b.builds {
		v := r.view()
		if v.State.Ended() || v.ProjectID != caller.ProjectID {
			continue
		}
		if r.same == same {
			return v, nil
		}
		open++
	}
	if open >= maxPerProject {
		return nil, bothy.Errorf(bothy.CodeQuota, "the project already has %d running or queued builds", open).WithHint("Wait until one has ended, or cancel one.")
	}
	if err := b.guard(b.o.Dir).Look(); err != nil {
		return nil, diskFull(err)
	}
	r := newRecord(b, caller, req, same)
	for _, s := range recipe.Stages {
		r.build.Steps += len(s.Steps)
	}
	r.build.Warnings = recipe.Warnings
	if err := r.save(); err != nil {
		return nil, err
	}
	b.builds[r.build.ID] = r
	b.begin(r)
	return r.view(), nil
}

// check returns an error for what cannot be built, and otherwise the Dockerfile.
func (b *Builder) check(ctx context.Context, project string, req *bothy.BuildRequest) (string, *Recipe, error) {
	if ref, err := bothy.ParseTemplateRef(req.Name); err != nil || ref.Digest != "" {
		return "", nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a valid template name", req.Name).
			WithHint("Use lower-case letters, digits, dots, dashes and underscores, with an optional tag after a colon: tools:v3.")
	}
	if req.TimeoutSeconds < 0 || req.TimeoutSeconds > 24*3600 {
		return "", nil, bothy.Errorf(bothy.CodeInvalid, "timeout_seconds is %d", req.TimeoutSeconds).WithHint("Give a value from 1 to %d.", 24*3600)
	}
	if err := checkStart(req.Start); err != nil {
		return "", nil, err
	}
	if _, err := sourceDate(req.Args); err != nil {
		return "", nil, err
	}
	if req.Network != nil && b.o.CheckNetwork != nil {
		if err := b.o.CheckNetwork(*req.Network); err != nil {
			return "", nil, err
		}
	}
	if err := checkSize(req); err != nil {
		return "", nil, err
	}
	text, err := b.dockerfile(ctx, project, req)
	if err != nil {
		return "", nil, err
	}
	recipe, err := Dockerfile(strings.NewReader(text), readOptions(req))
	return text, recipe, err
}

const (
	// maxRequest limits a request apart from its Dockerfile, and maxNamed its named contexts.
	maxRequest = 1 << 20
	maxNamed   = 100
)

func checkSize(req *bothy.BuildRequest) error {
	if n := len(req.Dockerfile); n > maxDockerfile {
		return tooLarge("the Dockerfile", n)
	}
	lines := 0
	for _, s := range req.Secrets {
		lines += strings.Count(s.Value, "\n") + 1
	}
	if lines > maxSecretLines {
		return bothy.Errorf(bothy.CodeTooLarge, "the secrets have %d lines, more than %d", lines, maxSecretLines).
			WithHint("Encode them, for example with base64 -w0, and decode them in the command.")
	}
	if n := len(req.Contexts); n > maxNamed {
		return bothy.Errorf(bothy.CodeInvalid, "the request names %d contexts, more than %d", n, maxNamed).WithHint("Upload folders together.")
	}
	rest := *req
	rest.Dockerfile = ""
	text, err := json.Marshal(rest)
	if err == nil && len(text) > maxRequest {
		err = bothy.Errorf(bothy.CodeTooLarge, "the request has %d bytes apart from the Dockerfile, more than %d", len(text), maxRequest).
			WithHint("Put large values into files of the context.")
	}
	return err
}

func tooLarge(file string, bytes int) error {
	return bothy.Errorf(bothy.CodeTooLarge, "%s has %d bytes, more than %d", file, bytes, maxDockerfile).
		WithHint("Put large files into the context, and use COPY.")
}

// readOptions returns a request's options for reading the Dockerfile.
func readOptions(req *bothy.BuildRequest) ReadOptions {
	return ReadOptions{Args: req.Args, Target: req.Target}
}

// dockerfile returns the text of the Dockerfile for a request.
func (b *Builder) dockerfile(ctx context.Context, project string, req *bothy.BuildRequest) (string, error) {
	for _, id := range contextsOf(req) {
		if _, err := os.Stat(b.contextPath(project, id)); err != nil {
			return "", noContext(id)
		}
	}
	if req.Dockerfile != "" {
		return req.Dockerfile, nil
	}
	file := cmp.Or(req.File, "Dockerfile")
	if req.ContextID == "" {
		return "", bothy.Errorf(bothy.CodeInvalid, "the request has neither a Dockerfile nor a context that could contain one").
			WithHint("Give dockerfile, or upload a folder and give context_id.")
	}
	t, err := b.readContext(ctx, b.contextPath(project, req.ContextID))
	if err != nil {
		return "", err
	}
	n, err := t.Get(file)
	if err != nil || !n.IsFile() {
		return "", bothy.Errorf(bothy.CodeInvalid, "the context has no file %s", file).WithHint("Set file to the path of the Dockerfile, or give its text in dockerfile.")
	}
	if n.Data.Size > maxDockerfile {
		return "", tooLarge(file, int(n.Data.Size))
	}
	text, err := n.Data.Read(maxDockerfile)
	return string(text), err
}

func (b *Builder) begin(r *record) {
	ctx, cancel := context.WithCancelCause(b.background)
	r.cancel = cancel
	b.wg.Go(func() {
		defer cancel(nil)
		select {
		case <-b.resume:
		case <-ctx.Done():
			r.finish(nil, context.Cause(ctx))
			return
		}
		most := maxOfProject
		if err := b.running.take(ctx, r.build.ProjectID, &most); err != nil {
			r.finish(nil, err)
			return
		}
		defer b.running.give(r.build.ProjectID)
		select {
		case b.slots <- struct{}{}:
			defer func() { <-b.slots }()
		case <-ctx.Done():
			r.finish(nil, context.Cause(ctx))
			return
		}
		if err := r.started(); err != nil {
			r.finish(nil, diskFull(err))
			return
		}
		t, err := b.build(bothy.WithCaller(ctx, r.caller), r)
		r.finish(t, diskFull(err))
		b.forget(r.build.ProjectID)
		b.prune(0)
	})
}

// prune shrinks the cache by at least so many bytes, except for what running builds refer to.
func (b *Builder) prune(spare int64) {
	if err := b.cache.prune(spare); err != nil {
		b.log.Warn("cannot prune the build cache", "error", err)
	}
}

var errCancelled = bothy.Errorf(bothy.CodeConflict, "the build was cancelled")

// build builds the template of one record.
func (b *Builder) build(ctx context.Context, r *record) (*bothy.Template, error) {
	req := r.req
	recipe, err := Dockerfile(strings.NewReader(req.Dockerfile), readOptions(&req))
	if err != nil {
		return nil, err
	}
	if b.o.Memory != nil {
		var end func()
		ctx, end = b.o.Memory(ctx, r.build.ProjectID)
		defer end()
	}
	work, err := os.MkdirTemp(b.work, "build-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	j := &job{
		b: b, id: r.build.ID, began: r.view().StartedAt, project: r.build.ProjectID, req: req, recipe: recipe, work: work, masked: masker(&req),
		say: r.say, count: r.count, left: r.left, bases: map[string]*baseSlot{}, context: tree.New(epoch), hold: b.cache.hold(r.build.ProjectID),
	}
	defer j.hold.end()
	if b.o.Plan != nil {
		if j.plan, err = b.o.Plan(ctx, j.project); err != nil {
			return nil, err
		}
	}
	if req.ContextID != "" {
		if j.context, err = b.readContext(ctx, b.contextPath(j.project, req.ContextID)); err != nil {
			return nil, err
		}
		if err := ignore(ctx, j.context, cmp.Or(req.File, "Dockerfile")); err != nil {
			return nil, err
		}
	}
	j.readContexts(ctx)
	st, err := j.run(ctx)
	if err != nil {
		return nil, err
	}
	return j.publish(ctx, st)
}

// publish makes a template from a state.
func (j *job) publish(ctx context.Context, st *state) (*bothy.Template, error) {
	t := j.template(st)
	if _, err := strconv.Atoi(t.User); err == nil {
		files, err := st.tree(ctx)
		if err != nil {
			return nil, err
		}
		t.User = known(files, t.User)
	}
	j.say(bothy.BuildEvent{Step: "image"})
	img, err := j.finish(ctx, st, t.User, t.Env["PATH"], st.settings.Image.Volumes, j.req.Args)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if j.req.Start != nil {
		return j.start(ctx, t, img)
	}
	return &t.Template, j.adopt(ctx, t, img)
}

// template is the manifest for a state.
func (j *job) template(st *state) *store.Template {
	s := st.settings
	t := &store.Template{Template: bothy.Template{
		Version: bothy.ManifestVersion, Name: j.req.Name, CreatedAt: time.Now().UTC().Truncate(time.Second),
		Env: map[string]string{}, Cwd: cmp.Or(s.Workdir, "/"), User: s.User, Source: "Dockerfile", Packages: map[string]string{},
		Description: s.Image.Labels[template.DescriptionLabel],
	}}
	if b := st.base.template; st.base.ours {
		t.Languages, t.Warm = b.Languages, b.Warm
		maps.Copy(t.Packages, b.Packages)
	}
	if t.User == "" && !st.base.ours {
		t.User = "root"
	}
	for _, v := range s.Env {
		t.Env[v.Name] = v.Value
	}
	if t.Env["PATH"] == "" {
		t.Env["PATH"] = defaultPath
	}
	t.Entrypoint = append(append([]string{}, s.Image.Entrypoint...), s.Image.Cmd...)
	image := s.Image
	t.Image = &image
	t.Origin = j.origin()
	return t
}

// Build implements bothy.TemplateBuilder.
func (b *Builder) Build(ctx context.Context, id string) (*bothy.Build, error) {
	r, err := b.find(ctx, id, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	return r.view(), nil
}

// Has reports whether a build exists, in any project.
func (b *Builder) Has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.builds[id] != nil
}

func (b *Builder) find(ctx context.Context, id string, scope bothy.Scope) (*record, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	r := b.builds[id]
	own := r != nil && r.build.ProjectID == caller.ProjectID
	b.mu.Unlock()
	if !own {
		if b.o.Unknown != nil {
			if err := b.o.Unknown(ctx, id); err != nil {
				return nil, err
			}
		}
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no build %q", id).WithHint("`bothy template builds` lists them.")
	}
	return r, nil
}

// Builds implements bothy.TemplateBuilder.
func (b *Builder) Builds(ctx context.Context) ([]*bothy.Build, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []*bothy.Build{}
	for _, r := range b.builds {
		if r.build.ProjectID == caller.ProjectID {
			list = append(list, r.view())
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].CreatedAt.After(list[j].CreatedAt) })
	return list, nil
}

// CancelBuild implements bothy.TemplateBuilder.
func (b *Builder) CancelBuild(ctx context.Context, id string) (*bothy.Build, error) {
	r, err := b.find(ctx, id, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	if r.view().State.Ended() {
		return r.view(), nil
	}
	r.cancel(errCancelled)
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return r.view(), nil
}

// BuildLog implements bothy.TemplateBuilder.
func (b *Builder) BuildLog(ctx context.Context, id string, from int64, fn func(int64, bothy.BuildEvent) error) error {
	r, err := b.find(ctx, id, bothy.ScopeTemplatesRead)
	if err != nil {
		return err
	}
	return r.follow(ctx, from, fn)
}

func noContext(id string) error {
	return bothy.Errorf(bothy.CodeInvalid, "there is no context %q", id).WithHint("Upload the folder again: contexts expire after %.0f hours.", contextLife.Hours())
}

// maxDeaths is how many deaths of the server a build may see. One that may be what kills it is not
// tried at every start.
const maxDeaths = 2

var errDeaths = bothy.Errorf(bothy.CodeTemplateInvalid, "the server died %d times while this build was running, so the build was given up", maxDeaths).
	WithHint("The build may be the cause: its files or its image may take more memory than the server has. If it is not, start it again. The operator finds the cause in the server's log.")

// Resume lets builds begin. The server calls it once it answers requests: a build that it may die
// of must not keep it from that.
func (b *Builder) Resume() { close(b.resume) }

// Recover queues the previous server's builds again, and deletes old records.
func (b *Builder) Recover(ctx context.Context) error {
	entries, err := os.ReadDir(b.records())
	if err != nil {
		return err
	}
	var errs []error
	projects := map[string]bool{}
	for _, e := range entries {
		r, err := b.loadRecord(e.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("read the record of build %s: %w", e.Name(), err))
			continue
		}
		if ended := r.build.EndedAt; ended != nil && time.Since(*ended) > keepRecords {
			errs = append(errs, os.RemoveAll(r.dir))
			continue
		}
		b.mu.Lock()
		b.builds[r.build.ID] = r
		b.mu.Unlock()
		projects[r.build.ProjectID] = true
		if r.build.State.Ended() {
			close(r.done)
			continue
		}
		b.endSandboxes(ctx, r)
		if r.deaths >= maxDeaths {
			b.log.Error("a build was given up, since the server died repeatedly while it was running", "build", r.build.ID, "project", r.build.ProjectID, "deaths", r.deaths)
			r.finish(nil, errDeaths)
			continue
		}
		r.say(bothy.BuildEvent{Step: "restart", Message: "the server was restarted: the build begins again, and takes from the cache what is done"})
		r.requeue()
		b.begin(r)
	}
	for project := range projects {
		b.forget(project)
	}
	return errors.Join(append(errs, b.dropContexts())...)
}

// forget deletes a project's oldest ended builds, if it has more than are kept.
func (b *Builder) forget(project string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ended []*record
	for _, r := range b.builds {
		if r.build.ProjectID == project && r.view().State.Ended() {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(x, y *record) int { return y.build.CreatedAt.Compare(x.build.CreatedAt) })
	logs := int64(0)
	for i, r := range ended {
		if logs += r.size(); i == 0 || i < maxRecords && logs <= maxLogs {
			continue
		}
		if err := os.RemoveAll(r.dir); err != nil {
			b.log.Warn("cannot delete the record of a build", "build", r.build.ID, "error", err)
			continue
		}
		delete(b.builds, r.build.ID)
	}
}

// endSandboxes terminates the sandboxes that a build of the previous server left.
func (b *Builder) endSandboxes(ctx context.Context, r *record) {
	ctx = bothy.WithCaller(ctx, r.caller)
	page, err := b.o.Sandboxes.List(ctx, bothy.SandboxFilter{States: bothy.LiveStates, Metadata: map[string]string{metadataKey: r.build.ID}, Limit: 100})
	if err != nil {
		b.log.Warn("cannot list the sandboxes of a build", "build", r.build.ID, "error", err)
		return
	}
	for _, sb := range page.Items {
		if err := b.o.Sandboxes.Terminate(ctx, sb.ID); err != nil {
			b.log.Warn("cannot terminate the sandbox of a build", "build", r.build.ID, "sandbox", sb.ID, "error", err)
		}
	}
}
