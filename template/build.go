package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/templates"
)

// A build is a template that is being built.
type build struct {
	lib  *Library
	work string // .build/<name>, removed at the end
	root *rootfs
	t    *store.Template
	// force disables the use of anything kept from earlier builds.
	force bool
	// searchPath is the PATH of commands; "" means the default.
	searchPath string

	log     func(bothy.BuildEvent)
	step    string
	percent float64 // where the current step begins
	share   float64 // what the step adds
}

// step is one part of a build. weight is roughly its duration in seconds.
type step struct {
	name   string
	weight float64
	do     func(context.Context) error
}

// BuildTemplate builds a template, or returns the existing one unless req.Force is set. Builds
// of one name run one at a time, even across processes. A failed build leaves the existing
// template unchanged.
func (l *Library) BuildTemplate(ctx context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*bothy.Template, error) {
	// All projects use the same templates.
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	if filepath.IsAbs(req.Image) { // a file of the server
		if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
			return nil, err
		}
	}
	if log == nil {
		log = func(bothy.BuildEvent) {}
	}
	t, err := l.build(ctx, req, log)
	if err != nil {
		log(bothy.BuildEvent{Step: "failed", Error: bothy.AsError(err).Detail})
		return nil, err
	}
	log(bothy.BuildEvent{Step: "done", Percent: 100, Template: &t.Template})
	return &t.Template, nil
}

func (l *Library) build(ctx context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*store.Template, error) {
	if err := check(req); err != nil {
		return nil, err
	}
	ref, err := bothy.ParseTemplateRef(req.Name)
	if err != nil {
		return nil, err
	}
	unlock, err := l.lock(ctx, ref.Name, func() {
		log(bothy.BuildEvent{Step: "wait", Message: "another build of " + req.Name + " is at work"})
	})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !req.Force {
		if t, err := l.load(ref.Name, tagLink(ref.Tag)); err == nil && upToDate(t, req) {
			return t, nil
		}
	}
	b, err := l.newBuild(ref, log)
	if err != nil {
		return nil, err
	}
	defer b.cleanUp()
	b.force = req.Force
	steps, err := b.plan(req)
	if err != nil {
		return nil, err
	}
	if err := b.run(ctx, steps); err != nil {
		return nil, explain(req.Name, err)
	}
	l.dropOld(ctx, b.t)
	return b.t, nil
}

// upToDate reports whether rebuilding a template would change nothing. A remote image may have
// changed, which only Force checks.
func upToDate(t *store.Template, req bothy.TemplateBuild) bool {
	if req.Image != "" {
		return true
	}
	d, err := readDefinition(templates.Files, req.Name)
	if err != nil {
		return false
	}
	recipe, err := d.recipe(templates.Files)
	return err == nil && recipe == t.Recipe
}

// check returns an error for requests that cannot be built.
func check(req bothy.TemplateBuild) error {
	switch {
	case !bothy.ValidTemplateName(req.Name):
		return invalidName(req.Name)
	case req.Image == "" && !slices.Contains(templates.Names(), req.Name):
		return bothy.Errorf(bothy.CodeInvalid, "%s is not a built-in template and no image was given; the built-in templates are: %s", req.Name, strings.Join(templates.Names(), ", ")).
			WithHint("To create it from an image: bothy template import IMAGE %s.", req.Name)
	}
	return nil
}

// newBuild creates an empty working folder, after deleting leftovers of a build that died. The
// caller holds the name's lock.
func (l *Library) newBuild(ref bothy.TemplateRef, log func(bothy.BuildEvent)) (*build, error) {
	b := &build{
		lib:  l,
		work: l.workFolder(ref.Name),
		log:  log,
		t: &store.Template{Template: bothy.Template{
			Version:   bothy.ManifestVersion,
			Name:      ref.Name,
			Tag:       tagOf(tagLink(ref.Tag)),
			CreatedAt: time.Now().UTC().Truncate(time.Second),
			Env:       map[string]string{"LANG": "C.UTF-8", "PATH": defaultPath},
			Cwd:       bothy.DefaultCwd,
			Packages:  map[string]string{},
		}},
	}
	if err := removeTree(b.work); err != nil {
		return nil, fmt.Errorf("delete the rest of an earlier build: %w", err)
	}
	dir := filepath.Join(b.work, "rootfs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder to build in: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the folder is / inside, whatever the umask
		return nil, fmt.Errorf("make a folder to build in: %w", err)
	}
	root, err := openRootfs(dir)
	if err != nil {
		return nil, fmt.Errorf("make a folder to build in: %w", err)
	}
	b.root = root
	return b, nil
}

func (b *build) cleanUp() {
	b.root.Close()
	if err := removeTree(b.work); err != nil {
		b.say("could not remove %s: %v", b.work, err)
	}
}

// plan turns a request into steps.
func (b *build) plan(req bothy.TemplateBuild) ([]step, error) {
	var steps []step
	if req.Image != "" {
		steps = b.fromImage(req.Image)
	} else {
		d, err := readDefinition(templates.Files, req.Name)
		if err != nil {
			return nil, err
		}
		if b.t.Recipe, err = d.recipe(templates.Files); err != nil {
			return nil, err
		}
		b.t.Origin = builtInOrigin(b.t)
		steps = b.fromDefinition(d)
	}
	if err := needTools("mkfs.erofs"); err != nil {
		return nil, err
	}
	return append(steps,
		step{"finish", 1, func(context.Context) error { return finish(b.root, b.searchPath) }},
		step{"image", 3, func(ctx context.Context) error {
			return mkfs(ctx, filepath.Join(b.work, imageName), b.root.dir)
		}},
		step{"publish", 2, func(ctx context.Context) error { return b.lib.publish(ctx, b.t, b.work) }},
	), nil
}

func (b *build) fromDefinition(d *definition) []step {
	b.t.Description = d.Description
	b.t.Languages, b.t.Warm = d.Languages, d.Warm
	for k, v := range d.Env {
		b.t.Env[k] = v
	}
	steps := []step{{"debian", 25, func(ctx context.Context) error { return b.debian(ctx, d.Debian) }}}
	if d.Python != nil {
		steps = append(steps, b.pythonSteps(d.Python)...)
	}
	if d.Node != nil {
		steps = append(steps, step{"node", 12, func(ctx context.Context) error { return b.node(ctx, d.Node) }})
	}
	return steps
}

// run runs the steps one by one and reports progress.
func (b *build) run(ctx context.Context, steps []step) error {
	var total, done float64
	for _, s := range steps {
		total += s.weight
	}
	for _, s := range steps {
		b.step, b.percent, b.share = s.name, 100*done/total, 100*s.weight/total
		b.say("")
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		done += s.weight
	}
	return nil
}

// advance reports how much of the current step is done.
func (b *build) advance(part float64, format string, args ...any) {
	b.log(bothy.BuildEvent{Step: b.step, Message: fmt.Sprintf(format, args...), Percent: b.percent + part*b.share})
}

// say reports progress in the current step to the caller.
func (b *build) say(format string, args ...any) {
	b.log(bothy.BuildEvent{Step: b.step, Message: fmt.Sprintf(format, args...), Percent: b.percent})
}

// explain turns a build failure into an error for the caller, who may see the tools' output.
func explain(name string, err error) error {
	var e *bothy.Error
	switch {
	case errors.As(err, &e), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the template %s could not be built: %v", name, err).
		WithHint("Building again is safe. Proxies and certificates are taken from the usual environment variables of the server.")
}

// dropOld deletes unneeded images that a name no longer refers to.
func (l *Library) dropOld(ctx context.Context, t *store.Template) {
	_ = l.collect(ctx, t.Name) // the next collection tries again
}

// removeTree deletes a folder, unless something is mounted in it, which would be deleted as
// well.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			return fmt.Errorf("%s is mounted there: unmount it first", fields[4])
		}
	}
	return os.RemoveAll(dir)
}
