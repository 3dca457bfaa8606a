package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/apart"
	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// defaultPath is the PATH for images that set none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// runs is the version of how commands are run: layers made by an earlier version are not reused.
const runs = 2

// runStep runs a RUN.
func (j *job) runStep(ctx context.Context, st *state, s Step, at place) (*state, error) {
	env := j.env(st)
	argv, script, err := command(st, s)
	if err != nil {
		return nil, atLine(s.Line, err)
	}
	mounts, err := j.mounts(ctx, st, s)
	if err != nil {
		return nil, atLine(s.Line, err)
	}
	network := j.network(s)
	user := cmp.Or(st.settings.User, "root")
	key := keyOf("run", runs, st.key, argv, script, env, st.settings.Workdir, user, network, mounts.keys)
	var scratch string // the command's result refers to it until it is in the cache
	defer func() { os.RemoveAll(scratch) }()
	n, err := j.cached(ctx, st, key, at.title, func(t *tree.Tree) (_ *tree.Tree, err error) {
		if scratch, err = os.MkdirTemp(j.work, "step-*"); err != nil {
			return nil, err
		}
		r := &running{
			j: j, st: st, step: s, place: at, old: t, scratch: scratch,
			argv: argv, script: script, env: env, user: known(t, user), network: network, mounts: mounts,
		}
		made, err := r.run(ctx)
		if err != nil {
			err = j.leave(ctx, r, err)
		}
		return made, atLine(s.Line, err)
	})
	if err != nil {
		return nil, err
	}
	at.bench.files = n.files
	return n, nil
}

// known gives a numeric user without an account the group 0.
func known(t *tree.Tree, user string) string {
	id, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return user
	}
	n, err := t.Get("/etc/passwd")
	if err == nil && n.IsFile() {
		text, _ := n.Data.Read(maxAccounts)
		for line := range strings.Lines(string(text)) {
			if f := strings.Split(line, ":"); len(f) > 3 && f[2] == strconv.FormatUint(id, 10) {
				return user
			}
		}
	}
	return user + ":0"
}

// env is the environment of a command: the image's, and the arguments.
func (j *job) env(st *state) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	if at, ok := j.req.Args[epochArg]; ok {
		env[epochArg] = at
	}
	maps.Copy(env, st.args)
	for _, v := range st.settings.Env {
		env[v.Name] = v.Value
	}
	return env
}

// network is the network policy of a command.
func (j *job) network(s Step) bothy.Network {
	if s.Network == "none" {
		return bothy.Network{Mode: bothy.NetworkOff}
	}
	if j.req.Network != nil {
		return *j.req.Network
	}
	return bothy.Network{Mode: bothy.NetworkRestricted}
}

// command returns what is executed. A command that is only a heredoc is a script: for the shell
// or, if it starts with #!, a file.
func command(st *state, s Step) (argv []string, script string, err error) {
	if !s.UseShell {
		return s.Args, "", nil
	}
	text := strings.Join(s.Args, " ")
	for _, f := range s.Files {
		data := f.Data
		if f.Chomp {
			data = chomp(data)
		}
		if isWhole(text, f, len(s.Files)) {
			if strings.HasPrefix(data, "#!") {
				return []string{scriptPath}, data, nil
			}
			text = data
			break
		}
		text += "\n" + f.Data + f.Name
	}
	return append(slices.Clone(st.settings.shell()), text), "", nil
}

// isWhole reports whether a command is only a heredoc, whose delimiter may be quoted.
func isWhole(text string, f File, files int) bool {
	if files != 1 {
		return false
	}
	name := strings.TrimLeft(strings.TrimSpace(text), "<-")
	return strings.Trim(name, `"'`) == f.Name && strings.HasPrefix(strings.TrimSpace(text), "<<")
}

func chomp(data string) string {
	lines := strings.SplitAfter(data, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "")
}

// scriptPath is the path of a heredoc with its own interpreter while it runs.
const scriptPath = "/.bothy-script"

// running is one running command.
type running struct {
	j    *job
	st   *state
	step Step
	place
	old     *tree.Tree
	scratch string // a folder
	argv    []string
	script  string
	env     map[string]string
	user    string
	network bothy.Network
	mounts  *mounts
	// content is what the command left in /run, or nil if that is nothing.
	content *tree.Node
}

func (r *running) run(ctx context.Context) (*tree.Tree, error) {
	unlock, err := r.mounts.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	base, err := r.st.base.load(ctx)
	if err != nil {
		return nil, err
	}
	result := filepath.Join(r.scratch, "after.tar")
	if err := r.inside(ctx, base, result); err != nil {
		r.bench.clear(ctx)
		return nil, err
	}
	after := base.Clone()
	if err := after.ApplyFrom(ctx, apart.List, result, tree.Overlay, tree.NewBudget()); err != nil {
		return nil, fmt.Errorf("read what the command has changed: %w", err)
	}
	if err := r.putRun(after); err != nil {
		return nil, err
	}
	if err := r.mounts.keep(after); err != nil {
		return nil, err
	}
	return after, r.restore(after)
}

func (b *Builder) writeLayer(t, base *tree.Tree, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := disk.NewSparse(f)
	return errors.Join(t.WriteLayer(base, io.MultiWriter(b.guard(filepath.Dir(path)), out)), out.Finish(), f.Close())
}

// needed are the folders that sandboxes mount on, or that their guest writes to.
var needed = []string{".bothy", "dev", "proc", "sys", "etc", "tmp", "run"}

// traces are files that a sandbox's guest writes and that Docker mounts over. They are
// restored.
var traces = []string{".bothy-script", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/mtab", "run/.bothy-boot-id", "var/log/lastlog"}

// prepare adds files that exist only while the command runs.
func (r *running) prepare(ctx context.Context, t *tree.Tree) error {
	for _, name := range needed {
		if n, err := t.Get(name); err == nil && n.IsDir() {
			continue
		}
		mode := uint32(unix.S_IFDIR | 0o755)
		if name == "tmp" {
			mode |= 0o1777
		}
		n, err := t.Mkdir(name, epoch)
		if err != nil {
			return err
		}
		n.Mode = mode
	}
	if r.script != "" {
		at, err := t.Resolve(scriptPath, true)
		if err != nil {
			return err
		}
		if err := t.Put(at, &tree.Node{Mode: unix.S_IFREG | 0o755, Time: epoch, Data: tree.Text(r.script)}); err != nil {
			return err
		}
	}
	return r.mounts.place(ctx, t)
}

// restore removes files that exist only while the command runs.
func (r *running) restore(after *tree.Tree) error {
	placed := slices.Concat(traces, r.mounts.targets(r.old))
	for _, name := range placed {
		restorePath(after, r.old, name)
	}
	r.restoreCertificates(after)
	for _, name := range needed {
		n, err := after.Lget(name)
		if _, was := r.old.Lget(name); err == nil && was != nil && n.IsDir() && len(n.Names()) == 0 {
			_ = after.Remove(name) // it is there
		}
	}
	if err := after.Settle(r.old); err != nil {
		return err
	}
	for _, name := range append(placed, certificates) {
		restoreTime(after, r.old, path.Dir(name))
	}
	return nil
}

// restorePath restores a path to its previous state.
func restorePath(after, old *tree.Tree, name string) {
	was, err := old.Lget(name)
	if err == nil {
		_ = after.Put(name, was)
		return
	}
	_ = after.Remove(name)
	// Also delete folders that were created for it, if they are empty.
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		n, err := after.Lget(dir)
		if _, was := old.Lget(dir); err != nil || was == nil || !n.IsDir() || len(n.Names()) > 0 {
			return
		}
		_ = after.Remove(dir)
	}
}

// certificates is where the guest adds trusted certificates.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// restoreCertificates restores the bundle, unless the command has changed it.
func (r *running) restoreCertificates(after *tree.Tree) {
	const most = 16 << 20
	now, err := after.Get(certificates)
	if err != nil || !now.IsFile() {
		return
	}
	text, err := now.Data.Read(most)
	if err != nil {
		return
	}
	var had []byte
	if was, err := r.old.Get(certificates); err == nil && was.IsFile() {
		had, _ = was.Data.Read(most)
	}
	added, ok := strings.CutPrefix(string(text), string(had))
	if !ok {
		return
	}
	for line := range strings.Lines(added) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(r.j.b.o.CABundle, line) {
			return
		}
	}
	at, err := r.old.Resolve(certificates, true)
	if err == nil {
		restorePath(after, r.old, at)
	}
}

// restoreTime restores the time of a folder in which nothing has changed after all.
func restoreTime(after, old *tree.Tree, name string) {
	n, err1 := after.Lget(name)
	was, err2 := old.Lget(name)
	if err1 != nil || err2 != nil || !n.IsDir() || !was.IsDir() || !slices.Equal(n.Names(), was.Names()) {
		return
	}
	for _, child := range n.Names() {
		if c := n.Child(child); c != was.Child(child) && !c.IsDir() {
			return
		}
	}
	n.Time = was.Time
}

// inside runs the command in a sandbox and saves its files.
func (r *running) inside(ctx context.Context, base *tree.Tree, result string) error {
	if !r.bench.serves(r) {
		r.bench.clear(ctx)
		before := r.old.Clone()
		if err := r.prepare(ctx, before); err != nil {
			return err
		}
		changes := filepath.Join(r.scratch, "before.tar")
		if err := r.j.b.writeLayer(before, base, changes); err != nil {
			return err
		}
		if err := r.bench.start(ctx, r, changes); err != nil {
			return err
		}
	}
	if err := r.mounts.tell(ctx, r.bench.id); err != nil {
		return err
	}
	if err := r.execute(ctx, r.bench.id, float64(r.j.patience())); err != nil {
		return err
	}
	if err := r.j.b.guard(r.scratch).Look(); err != nil {
		return err
	}
	if err := r.j.b.o.Sandboxes.SaveFiles(ctx, r.bench.id, result); err != nil {
		return err
	}
	if err := r.saveRun(ctx); err != nil {
		return err
	}
	r.bench.release(ctx, r)
	return nil
}

// endSandbox terminates a sandbox, even if the build has ended.
func (j *job) endSandbox(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := j.b.o.Sandboxes.Terminate(ctx, id); err != nil {
		j.b.log.Warn("cannot terminate the sandbox of a build", "build", j.id, "sandbox", id, "error", err)
	}
}

// machine is the template of the sandbox: the base's image without its settings.
func (r *running) machine() *store.Template {
	t := *r.st.base.template
	t.Env, t.Cwd, t.User, t.Languages, t.Warm = nil, "/", "root", nil, nil
	return &t
}

func (r *running) execute(ctx context.Context, id string, seconds float64) error {
	dir := cmp.Or(r.st.settings.Workdir, "/")
	secrets := r.mounts.variables
	env := maps.Clone(r.env)
	maps.Copy(env, secrets)
	out := &lines{say: func(line string) {
		r.j.say(bothy.BuildEvent{Step: r.title, Message: r.j.masked.Replace(line)})
	}}
	var last bothy.ExecEvent
	argv := r.argv
	req := bothy.ExecRequest{
		Command: bothy.Command{Args: argv}, Cwd: dir, Env: env, User: r.user, TimeoutSeconds: seconds, MergeStderr: true,
	}
	err := r.j.b.o.Sandboxes.ExecStream(ctx, id, req, func(e bothy.ExecEvent) error {
		if e.IsFinal {
			last = e
			return nil
		}
		data, err := e.Bytes()
		if err != nil {
			return err
		}
		out.write(data)
		return nil
	})
	out.flush()
	switch {
	case err != nil:
		return err
	case last.TimedOut:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the command did not end within %.0f seconds: %s", seconds, r.shown()).
			WithHint("Increase timeout_seconds, or check the build's log for what it is waiting for.")
	case last.OOMKilled:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the command ran out of memory: %s", r.shown()).WithHint("Give the build more memory with memory_mb.")
	case last.ExitCode != 0:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the command ended with exit code %d: %s", last.ExitCode, r.shown()).
			WithHint("Its output is in the build's log.")
	}
	return nil
}

func (r *running) shown() string { return r.j.shown(strings.Join(r.step.Args, " ")) }

// shown is a command as shown in errors.
func (j *job) shown(command string) string {
	if len(command) > 200 {
		command = command[:200] + "…"
	}
	return j.masked.Replace(command)
}

// lines splits output into lines.
type lines struct {
	rest []byte
	say  func(string)
}

// maxLine is the length at which a line is split.
const maxLine = 8 << 10

func (l *lines) write(data []byte) {
	l.rest = append(l.rest, data...)
	for {
		i := slices.Index(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return
		}
		if i < 0 {
			i = maxLine - 1
		}
		l.emit(l.rest[:i])
		l.rest = l.rest[min(i+1, len(l.rest)):]
	}
}

func (l *lines) emit(line []byte) {
	text := strings.TrimRight(string(line), "\r")
	if i := strings.LastIndexByte(text, '\r'); i >= 0 { // progress that was overwritten
		text = text[i+1:]
	}
	l.say(strings.ToValidUTF8(text, "\uFFFD"))
}

func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.emit(l.rest)
		l.rest = nil
	}
}
