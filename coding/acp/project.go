package acp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/coding/folder"
)

// Project is the folders of an editor's sessions, on both sides.
type Project struct {
	Files   folder.Files
	Exec    bothy.ExecService
	Sandbox string
	// Only is the one folder that is copied, or "" for those that the sessions name, and At its
	// path in the sandbox, or "" for the same path.
	Only, At string
	// Ignored and Exclude are as in folder.Options.
	Ignored bool
	Exclude []string
	// States are those of folders that the sandbox has had, by their paths on this host.
	States map[string]folder.State
	// Ready is called before the sandbox is used.
	Ready func(ctx context.Context) error
	// Note is called with messages for the user, and Carried with a report of what was copied.
	Note    func(format string, args ...any)
	Carried func(local string, r folder.Report)

	mu   sync.Mutex
	open []*folder.Folder
}

// Open implements Folders. A folder inside an open one is open.
func (p *Project) Open(ctx context.Context, dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("cannot carry %s: there is no such folder", dir)
	}
	if p.Only != "" {
		if !lies(real, p.Only) {
			return fmt.Errorf("the session's folder %s is not in %s, the one that is carried into the sandbox: open the editor there, or start with another --folder", dir, p.Only)
		}
		real, dir = p.Only, p.Only
	}
	p.mu.Lock()
	f := p.holding(real)
	p.mu.Unlock()
	if f == nil {
		if f, err = p.add(ctx, real); err != nil {
			return err
		}
	}
	if err := p.sync(ctx, f); err != nil {
		return err
	}
	if inside, _ := f.Holds(real); p.At == "" && dir != real {
		return p.prepare(ctx, `[ -e "$2" ] || { mkdir -p "$(dirname "$2")" && ln -s "$1" "$2"; }`, inside, dir)
	}
	return nil
}

func (p *Project) add(ctx context.Context, local string) (*folder.Folder, error) {
	if err := folder.Check(local); err != nil {
		return nil, err
	}
	inside := p.At
	if inside == "" {
		inside = local
		if err := checkInside(inside); err != nil {
			return nil, err
		}
	}
	f, err := folder.New(p.Files, folder.Options{
		Local: local, Inside: inside, Sandbox: p.Sandbox, Ignored: p.Ignored, Exclude: p.Exclude, Note: p.Note,
	})
	if err != nil {
		return nil, err
	}
	if state, ok := p.States[local]; ok {
		if err := f.Restore(state); err != nil {
			return nil, err
		}
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	who, err := p.Exec.Exec(ctx, p.Sandbox, bothy.ExecRequest{Command: bothy.Command{Args: []string{"id", "-u"}}, Cwd: "/"})
	if err != nil {
		return nil, err
	}
	// The parent folders belong to root there, and let the agent through.
	const script = `mkdir -p "$1" && chown "$2" "$1" && d=$1 && while [ "$d" != / ]; do chmod a+x "$d"; d=$(dirname "$d"); done`
	if err := p.prepare(ctx, script, inside, strings.TrimSpace(who.Stdout)); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.open = append(p.open, f)
	p.mu.Unlock()
	return f, nil
}

// prepare runs a script in the sandbox, as root.
func (p *Project) prepare(ctx context.Context, script string, args ...string) error {
	r, err := p.Exec.Exec(ctx, p.Sandbox, bothy.ExecRequest{
		Command: bothy.Command{Args: append([]string{"sh", "-c", script, "sh"}, args...)}, User: "root", Cwd: "/",
	})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s", strings.TrimSpace(r.Stderr))
	}
	if err != nil {
		return fmt.Errorf("the sandbox has no room for %s: %w: choose another place with --at", args[0], err)
	}
	return nil
}

// checkInside refuses paths where a sandbox has its own files.
func checkInside(path string) error {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if slices.Contains([]string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}, top) || "/"+top == path && top != "workspace" {
		return fmt.Errorf("%s would lie among the files of the sandbox's own system: choose another place, as in --at /workspace", path)
	}
	return nil
}

func (p *Project) ready(ctx context.Context) error {
	if p.Ready == nil {
		return nil
	}
	return p.Ready(ctx)
}

func (p *Project) sync(ctx context.Context, f *folder.Folder) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	r, err := f.Sync(ctx)
	if p.Carried != nil && r.In+r.Out > 0 {
		p.Carried(f.Options().Local, r)
	}
	return err
}

// Sync implements Folders.
func (p *Project) Sync(ctx context.Context) error {
	p.mu.Lock()
	open := slices.Clone(p.open)
	p.mu.Unlock()
	for _, f := range open {
		if err := p.sync(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// Now returns the states of the folders, to be saved.
func (p *Project) Now() map[string]folder.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := map[string]folder.State{}
	for _, f := range p.open {
		states[f.Options().Local] = f.State()
	}
	return states
}

func (p *Project) holding(local string) *folder.Folder {
	for _, f := range p.open {
		if _, ok := f.Holds(local); ok {
			return f
		}
	}
	return nil
}

// Allow implements Folders: what the editor does for the agent is restricted like what is
// copied.
func (p *Project) Allow(name string, write bool) error {
	if filepath.IsAbs(name) && filepath.Clean(name) == name {
		if real, ok := resolve(name); ok {
			p.mu.Lock()
			f := p.holding(real)
			p.mu.Unlock()
			if f != nil {
				return f.Allow(real, write)
			}
		}
	}
	return fmt.Errorf("%q is not in the project's folder, and files elsewhere on the editor's host are not for an agent in a sandbox", name)
}

// resolve follows links. For a file that does not exist yet, it resolves the folder.
func resolve(name string) (string, bool) {
	for real := name; ; real = filepath.Dir(real) {
		resolved, err := filepath.EvalSymlinks(real)
		if err == nil {
			return resolved + strings.TrimPrefix(name, real), true
		}
		if dangles(real) || real == "/" {
			return "", false
		}
	}
}

// ToAgent implements Folders.
func (p *Project) ToAgent(path string) (string, bool) {
	return p.translate(path, func(f *folder.Folder) (string, bool) { return f.Holds(path) })
}

// ToEditor implements Folders.
func (p *Project) ToEditor(path string) (string, bool) {
	return p.translate(path, func(f *folder.Folder) (string, bool) { return f.Lies(path) })
}

func (p *Project) translate(path string, by func(*folder.Folder) (string, bool)) (string, bool) {
	if p.At == "" {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.open {
		if to, ok := by(f); ok {
			return to, to != path
		}
	}
	return "", false
}

// dangles reports whether there is a link of that name, wherever it leads.
func dangles(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

func lies(path, in string) bool { return path == in || strings.HasPrefix(path, in+"/") }
