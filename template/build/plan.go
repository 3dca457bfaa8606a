package build

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/tree"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// epoch is the default time of files: the beginning of 1980, the earliest that zip supports.
var epoch = time.Unix(315532800, 0)

// base is what stages start from: a read-only image and its settings.
type base struct {
	key      string // by content
	template *store.Template
	settings settings
	// ours is set for templates of the library, whose commands run as DefaultUser by default.
	ours bool

	once sync.Once
	tree *tree.Tree
	err  error
}

func (b *base) load(ctx context.Context) (*tree.Tree, error) {
	b.once.Do(func() { b.tree, b.err = tree.Read(ctx, b.template.RootFS) })
	return b.tree, b.err
}

// state is a stage between two steps: settings, and files as layers over a base. Later steps do
// not change it.
type state struct {
	base     *base
	key      string
	layers   []string // paths in the cache
	settings settings
	args     map[string]string

	files *tree.Tree // of base and layers, once it is known
	// uploaded is set for a context, whose files belong to root wherever they are copied.
	uploaded bool
}

// tree returns the files of a state.
func (s *state) tree(ctx context.Context) (*tree.Tree, error) {
	if s.files != nil {
		return s.files, nil
	}
	b, err := s.base.load(ctx)
	if err != nil {
		return nil, err
	}
	t := b.Clone()
	for _, l := range s.layers {
		if err := t.Apply(ctx, l, tree.Overlay, tree.NewBudget()); err != nil {
			return nil, fmt.Errorf("read a layer of the build cache: %w", err)
		}
	}
	s.files = t
	return t, nil
}

// next is the state after a step that makes no files.
func (s *state) next(key string) *state {
	n := *s
	n.key, n.settings = key, s.settings.clone()
	n.settings.CmdSet = s.settings.CmdSet
	return &n
}

// A job is one running build.
type job struct {
	b       *Builder
	id      string
	began   *time.Time
	project string
	plan    bothy.Plan
	req     bothy.BuildRequest
	recipe  *Recipe
	context *tree.Tree
	work    string // its own folder, deleted at the end
	say     func(bothy.BuildEvent)
	count   func(cached bool)
	left    func(sandbox string)
	masked  *strings.Replacer
	sums    treeHasher
	sumsMu  sync.Mutex
	values  values
	hold    *hold

	mu       sync.Mutex
	bases    map[string]*baseSlot
	contexts map[string]func() (*state, error) // the named ones
	stages   []*stageSlot
	hasLeft  atomic.Bool // a sandbox was left, or attempted
}

type baseSlot struct {
	once sync.Once
	base *base
	err  error
}

type stageSlot struct {
	done  chan struct{}
	state *state
	err   error
}

// run builds all stages, in parallel if possible, and returns the last one's state.
func (j *job) run(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	j.stages = make([]*stageSlot, len(j.recipe.Stages))
	for i := range j.stages {
		j.stages[i] = &stageSlot{done: make(chan struct{})}
	}
	var wg sync.WaitGroup
	for i := range j.stages {
		wg.Go(func() {
			s := j.stages[i]
			defer close(s.done)
			if s.state, s.err = j.stage(ctx, i); s.err != nil {
				cancel(s.err)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return j.stages[len(j.stages)-1].state, nil
}

// result waits for an earlier stage.
func (j *job) result(ctx context.Context, i int) (*state, error) {
	select {
	case <-j.stages[i].done:
		return j.stages[i].state, j.stages[i].err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stage makes one stage.
func (j *job) stage(ctx context.Context, i int) (*state, error) {
	s := &j.recipe.Stages[i]
	st, err := j.from(ctx, s)
	if err != nil {
		return nil, err
	}
	steps, err := triggers(st.settings.Image.OnBuild, readOptions(&j.req), s.Line)
	if err != nil {
		return nil, err
	}
	st.settings.Image.OnBuild = nil
	steps = append(steps, s.Steps...)
	bench := &workbench{j: j}
	defer bench.clear(ctx)
	for n, step := range steps {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if st, err = j.step(ctx, st, step, place{j.title(i, n, len(steps), step), bench, isLast(steps[n+1:])}); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// place is a step's position in its stage.
type place struct {
	title string
	bench *workbench
	last  bool // of those that can share a sandbox
}

// title is a step's name in the log.
func (j *job) title(stage, n, of int, s Step) string {
	where := fmt.Sprintf("[%d/%d]", n+1, of)
	if len(j.recipe.Stages) > 1 {
		name := j.recipe.Stages[stage].Name
		if name == "" {
			name = "stage " + strconv.Itoa(stage)
		}
		where = fmt.Sprintf("[%s %d/%d]", name, n+1, of)
	}
	text := s.Text
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return where + " " + text
}

// from is the initial state of a stage.
func (j *job) from(ctx context.Context, s *Stage) (*state, error) {
	if s.FromStage != nil {
		before, err := j.result(ctx, *s.FromStage)
		if err != nil {
			return nil, err
		}
		n := before.next(before.key)
		n.settings.CmdSet = false // arguments are inherited by stages that start from this one
		return n, nil
	}
	b, err := j.base(ctx, s.From)
	if err != nil && s.Later != 0 && ctx.Err() == nil {
		return nil, refuse(s.Line, "the stage %s begins later, on line %d: a stage can start only from an earlier one", s.From, s.Later)
	}
	if err != nil {
		return nil, atLine(s.Line, err)
	}
	return &state{base: b, key: j.key(b), settings: b.settings.clone()}, nil
}

// key is the key of a base. All other keys include it, so that a project's builds find only what
// its own have made: what was made of the same words elsewhere may differ, and whether it was made
// is nobody else's business.
func (j *job) key(b *base) string { return keyOf("base", j.project, b.key) }

// base opens what a FROM or --from names, once per build.
func (j *job) base(ctx context.Context, ref string) (*base, error) {
	j.mu.Lock()
	slot := j.bases[ref]
	if slot == nil {
		slot = &baseSlot{}
		j.bases[ref] = slot
	}
	j.mu.Unlock()
	slot.once.Do(func() {
		slot.base, slot.err = j.b.openBase(ctx, j.hold, ref, j.req.Registries, func(format string, args ...any) {
			j.say(bothy.BuildEvent{Step: "FROM " + ref, Message: fmt.Sprintf(format, args...)})
		})
	})
	return slot.base, slot.err
}

// source returns the files that --from names: of a stage, or of an image.
func (j *job) source(ctx context.Context, from string) (*state, error) {
	if i, err := strconv.Atoi(from); err == nil && i < len(j.stages) {
		return j.result(ctx, i)
	}
	if read := j.contexts[from]; read != nil {
		return read()
	}
	b, err := j.base(ctx, from)
	if err != nil {
		return nil, err
	}
	return &state{base: b, key: j.key(b)}, nil
}

// step runs a step, or finds its result in the cache.
func (j *job) step(ctx context.Context, st *state, s Step, at place) (*state, error) {
	lex := shell.NewLex(j.recipe.Escape)
	s, err := expander{lex, scope{&st.settings, st.args}, &j.values}.expand(s)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case Run:
		return j.runStep(ctx, st, s, at)
	case Copy, Add:
		return j.copyStep(ctx, st, s, at.title)
	case Workdir:
		return j.workdir(ctx, st, s, at.title)
	case Arg:
		return j.arg(st, s)
	}
	n := st.next(st.key)
	err = n.settings.apply(s)
	if err == nil {
		err = n.settings.check()
	}
	if err != nil {
		return nil, refuse(s.Line, "%v", err)
	}
	j.count(true)
	j.say(bothy.BuildEvent{Step: at.title})
	return n, nil
}

func (j *job) arg(st *state, s Step) (*state, error) {
	n := st.next(st.key)
	n.args = map[string]string{}
	for k, v := range st.args {
		n.args[k] = v
	}
	for _, p := range s.Pairs {
		if p.Value != nil {
			n.args[p.Name] = *p.Value
		} else if v, ok := platformArgs[p.Name]; ok {
			n.args[p.Name] = v
		}
	}
	if len(n.args) > maxItems {
		return nil, refuse(s.Line, "there are more than %d arguments", maxItems)
	}
	j.count(true)
	return n, nil
}

// workdir creates the working directory of later steps.
func (j *job) workdir(ctx context.Context, st *state, s Step, title string) (*state, error) {
	dir := s.Args[0]
	if !path.IsAbs(dir) {
		dir = path.Join("/", st.settings.Workdir, dir)
	}
	dir = path.Clean(dir)
	user := st.settings.User
	n, err := j.cached(ctx, st, keyOf("workdir", st.key, dir, user), title, func(t *tree.Tree) (*tree.Tree, error) {
		c := &copying{ctx: ctx, to: t, now: time.Now().Truncate(time.Second)}
		if user != "" { // the owner of new folders
			u, err := lookup(t, user)
			if err != nil {
				return nil, atLine(s.Line, err)
			}
			c.uid, c.gid, c.files.Chown = u.uid, u.gid, user
		}
		at, err := t.Resolve(dir, true)
		if err == nil {
			err = c.parents("/" + at)
		}
		return t, atLine(s.Line, err)
	})
	if err != nil {
		return nil, err
	}
	n.settings.Workdir = dir
	return n, nil
}

// cached returns the state after a step that makes files. It calls do if they are not in the
// cache. Steps after a repeated step must also be repeated, so it gets a new key, which later
// builds find.
func (j *job) cached(ctx context.Context, st *state, key, title string, do func(*tree.Tree) (*tree.Tree, error)) (*state, error) {
	redone := keyOf("redone", key)
	var again string
	switch {
	case j.req.NoCache:
		key = keyOf(key, j.id)
	case j.hold.recall(redone, &again) && j.hold.has(j.b.cache.path(layersDir, j.project, again)):
		key = again
	}
	n, err := j.found(ctx, st, key, title, do)
	if err == nil && j.req.NoCache {
		err = j.hold.remember(redone, key)
	}
	return n, err
}

// found is cached with the key under which the result is kept.
func (j *job) found(ctx context.Context, st *state, key, title string, do func(*tree.Tree) (*tree.Tree, error)) (*state, error) {
	n := st.next(key)
	path := j.b.cache.path(layersDir, j.project, key)
	n.layers = append(append([]string{}, st.layers...), path)
	n.files = nil
	if j.hold.has(path) {
		j.count(true)
		j.say(bothy.BuildEvent{Step: title, Message: "cached"})
		return n, nil
	}
	j.say(bothy.BuildEvent{Step: title})
	old, err := st.tree(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	made, err := do(old.Clone())
	if err != nil {
		return nil, err
	}
	if err := j.keepLayer(path, old, made); err != nil {
		return nil, err
	}
	// The new state refers to files in the cache, not to this build's folder.
	n.files = old.Clone()
	if err := n.files.Apply(ctx, path, tree.Overlay, tree.NewBudget()); err != nil {
		return nil, err
	}
	j.count(false)
	j.say(bothy.BuildEvent{Step: title, Message: fmt.Sprintf("done in %.1f s", time.Since(began).Seconds())})
	return n, nil
}

// atLine adds the line of a Dockerfile to an error.
func atLine(line int, err error) error {
	if err == nil || line == 0 {
		return err
	}
	e := *bothy.AsError(diskFull(err))
	if e.Code == bothy.CodeInternal {
		return refuse(line, "%v", err)
	}
	e.Detail = fmt.Sprintf("Dockerfile line %d: %s", line, e.Detail)
	return &e
}
