package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/template/apart"
	"github.com/bothy-dev/bothy/template/tree"
)

// runDir is memory in sandboxes, which fill it from the image when they start. So a command's
// changes there are in no layer, and are read from the sandbox.
const runDir = "run"

// maxRun limits the bytes that a command may leave in /run.
const maxRun = 256 << 20

// ownRun are what a sandbox's guest puts there; the last one may also be the image's.
var ownRun = []string{"bothy", ".bothy-boot-id", "lock"}

// saveRun reads what a command has left in /run. Pipes and sockets are not kept.
func (r *running) saveRun(ctx context.Context) error {
	files := r.j.b.o.Files
	list, err := files.List(ctx, r.bench.id, "/"+runDir, "root", 1)
	if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	others := slices.ContainsFunc(list, func(f bothy.FileInfo) bool { return !slices.Contains(ownRun, f.Name) })
	if _, err := r.old.Lget(runDir + "/lock"); !others && err != nil {
		return nil
	}
	exclude := []string{"/bothy", "/.bothy-boot-id"}
	for _, m := range r.mounts.list { // secrets are on no disk of the host
		at, err := r.old.Resolve(m.Target, true)
		if name, ok := strings.CutPrefix(at, runDir+"/"); ok && err == nil && m.Type == "secret" {
			exclude = append(exclude, "/"+escaped.Replace(name))
		}
	}
	in, err := files.ReadArchive(ctx, r.bench.id, "/"+runDir, "root", bothy.ArchiveOptions{Exclude: exclude})
	if err != nil {
		return err
	}
	defer in.Close()
	file := filepath.Join(r.scratch, "run.tar")
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(r.j.b.guard(r.scratch), out), bounded.Reader(ctx, in, maxRun))
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("read what the command has left in /run: %w", err)
	}
	t := tree.New(epoch)
	if err := t.ApplyFrom(ctx, apart.List, file, tree.Plain, tree.NewBudget()); err != nil {
		return fmt.Errorf("read what the command has left in /run: %w", err)
	}
	r.content = t.Root()
	return nil
}

// escaped makes a name a pattern.
var escaped = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// putRun replaces what a tree has in /run by what was read.
func (r *running) putRun(after *tree.Tree) error {
	dir, err := after.Lget(runDir)
	if err != nil || !dir.IsDir() {
		return nil // what was mounted there is not the image's
	}
	names := dir.Names()
	changed := false
	for _, name := range names {
		if r.content == nil || r.content.Child(name) == nil {
			if err := after.Remove(path.Join(runDir, name)); err != nil {
				return err
			}
			changed = true
		}
	}
	if r.content == nil {
		return nil
	}
	for _, name := range r.content.Names() {
		n, at := r.content.Child(name), path.Join(runDir, name)
		if _, err := r.old.Lget(at); name == "lock" && err != nil && len(n.Names()) == 0 {
			continue
		}
		if dir.Child(name) == nil {
			changed = true
		}
		if err := after.Put(at, n); err != nil {
			return err
		}
	}
	if changed {
		dir.Time = time.Now().Truncate(time.Second)
	}
	return nil
}
