package build

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
)

// A workbench is the sandbox of a stage's commands. It is reused for the next command if that
// is equivalent to a new one: with the files of the previous step, and nothing else left by the
// last command.
type workbench struct {
	j       *job
	id      string // "" while there is none
	base    *base
	network bothy.Network
	files   *tree.Tree // its current files
	until   time.Time  // no command starts after this
	initial string     // its state other than files when it was new
}

// clear terminates the sandbox.
func (w *workbench) clear(ctx context.Context) {
	if w.id != "" {
		w.j.endSandbox(ctx, w.id)
		w.j.give()
	}
	*w = workbench{j: w.j}
}

// serves reports whether a command can run in the existing sandbox.
func (w *workbench) serves(r *running) bool {
	return w.id != "" && r.step.isPlain() && w.files != nil && w.files == r.st.files && w.base == r.st.base &&
		reflect.DeepEqual(w.network, r.network) && time.Now().Before(w.until)
}

// start creates a sandbox for a command, with a file of changes to its base.
func (w *workbench) start(ctx context.Context, r *running, changes string) error {
	if err := w.j.take(ctx); err != nil {
		return err
	}
	patience := w.j.patience()
	lifetime := w.j.lifetime(patience)
	sb, err := w.j.b.o.Sandboxes.StartFrom(ctx, w.j.sandbox(r.st.base.template.Name, r.network, lifetime), r.machine(), changes)
	if err != nil {
		w.j.give()
		return err
	}
	*w = workbench{j: w.j, id: sb.ID, base: r.st.base, network: r.network, until: time.Now().Add(time.Duration(lifetime-patience-marginSeconds/2) * time.Second)}
	if r.last || !r.step.isPlain() || w.j.b.o.Bounded == nil || !w.j.b.o.Bounded(sb.Engine) {
		return nil
	}
	w.initial = w.look(ctx)
	return nil
}

// graceSeconds is how much longer than its first command a sandbox may live, if the plan allows
// it: other commands can start in that time.
const graceSeconds = 600

// release terminates the sandbox after a command, unless it can serve the next one.
func (w *workbench) release(ctx context.Context, r *running) {
	if r.last || w.initial == "" || w.look(ctx) != w.initial {
		w.clear(ctx)
	}
}

// isPlain reports whether a command needs nothing placed among the files.
func (s *Step) isPlain() bool { return s.Kind == Run && len(s.Mounts) == 0 && len(s.Files) == 0 }

// isLast reports whether the following steps of a stage cannot use its sandbox.
func isLast(following []Step) bool {
	for i := range following {
		switch s := &following[i]; s.Kind {
		case Run:
			return !s.isPlain()
		case Copy, Add, Workdir:
			return true
		}
	}
	return true
}

// besideImage are files and folders that are not part of an image, or specific to each sandbox.
// Of /proc, the processes count.
var besideImage = struct{ files, folders []string }{
	files:   []string{"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/machine-id", certificates},
	folders: []string{"proc", "run", "dev", "dev/shm"},
}

// look describes what is in the sandbox other than the image's files: its processes, files in
// memory, and the files specific to each sandbox. It returns "" if that cannot be determined.
func (w *workbench) look(ctx context.Context) string {
	sum := sha256.New()
	for _, name := range besideImage.files {
		fmt.Fprintf(sum, "\n%s: ", name)
		if err := w.read(ctx, sum, "/"+name); err != nil {
			return ""
		}
	}
	for _, name := range besideImage.folders {
		list, err := w.j.b.o.Files.List(ctx, w.id, "/"+name, "root", 1)
		if err != nil && bothy.ErrorCode(err) != bothy.CodeFileNotFound {
			return ""
		}
		for _, f := range list {
			if _, err := strconv.Atoi(f.Name); err == nil || name != "proc" {
				fmt.Fprintf(sum, "\n%s %s", name, f.Name)
			}
		}
	}
	return string(sum.Sum(nil))
}

func (w *workbench) read(ctx context.Context, sum io.Writer, name string) error {
	f, _, err := w.j.b.o.Files.Read(ctx, w.id, name, "root")
	if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(sum, io.LimitReader(f, 16<<20))
	return err
}
