package code

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/jupyter"
)

// kernelspec is an installed Jupyter kernel.
type kernelspec struct {
	Argv      []string          `json:"argv"`
	Language  string            `json:"language"`
	Env       map[string]string `json:"env"`
	Interrupt string            `json:"interrupt_mode"`
}

// findKernel returns the kernel for a language, or nil. It looks where Jupyter
// looks, for every installation whose programs are in PATH.
func findKernel(lang string, id Identity) *kernelspec {
	var dirs []string
	for _, kv := range id.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			for _, d := range filepath.SplitList(path) {
				if filepath.Base(d) == "bin" {
					dirs = append(dirs, filepath.Join(filepath.Dir(d), "share/jupyter/kernels"))
				}
			}
		}
	}
	if id.User != nil {
		dirs = append([]string{filepath.Join(id.User.Home, ".local/share/jupyter/kernels")}, dirs...)
	}
	dirs = append(dirs, "/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")
	seen := map[string]bool{}
	for _, dir := range dirs {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		names, _ := filepath.Glob(dir + "/*/kernel.json")
		slices.Sort(names)
		for _, name := range names {
			if k := readKernelspec(name); k != nil && k.speaks(lang) {
				return k
			}
		}
	}
	return nil
}

func readKernelspec(name string) *kernelspec {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	k := &kernelspec{}
	if json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(k) != nil || len(k.Argv) == 0 {
		return nil
	}
	return k
}

func (k *kernelspec) speaks(lang string) bool {
	l, ok := languages[strings.ToLower(k.Language)]
	return ok && k.Language != "" && l == lang
}

// start starts a language's kernel.
func (m *Manager) start(ctx context.Context, lang, cwd string, id Identity) (kernel, error) {
	spec := command.Spec{Env: id.Env, Dir: id.Cwd, User: id.User, Tag: "code:" + lang, Internal: true}
	if cwd != "" {
		spec.Dir = filepath.Join(id.Cwd, cwd)
		if filepath.IsAbs(cwd) {
			spec.Dir = cwd
		}
	}
	spec.Asked.Cwd = spec.Dir
	if k := findKernel(lang, id); k != nil {
		return m.startJupyter(ctx, k, spec)
	}
	return m.startDriver(lang, spec)
}

// jupyterKernel is a kernel that speaks Jupyter's protocol.
type jupyterKernel struct {
	spec    *kernelspec
	dir     string
	process *command.Process
	client  *jupyter.Kernel
	once    sync.Once
}

func (m *Manager) startJupyter(ctx context.Context, ks *kernelspec, spec command.Spec) (kernel, error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(m.dir, "k")
	if err != nil {
		return nil, err
	}
	k := &jupyterKernel{spec: ks, dir: dir}
	uid, gid := os.Getuid(), os.Getgid()
	if spec.User != nil {
		uid, gid = int(spec.User.UID), int(spec.User.GID)
	}
	conn, err := jupyter.NewConnection(dir, uid, gid)
	if err == nil {
		err = os.Chown(dir, uid, gid)
	}
	if err == nil {
		spec.Argv, err = m.wrapPythonKernel(kernelArgv(ks.Argv, conn.File))
	}
	if err == nil {
		for name, value := range ks.Env {
			spec.Env = append(spec.Env, name+"="+value)
		}
		k.process, err = m.host.Start(spec)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		<-k.process.Done()
		k.cleanUp()
	}()
	if err := k.connect(ctx, conn); err != nil {
		k.kill()
		return nil, err
	}
	return k, nil
}

func kernelArgv(argv []string, file string) []string {
	argv = slices.Clone(argv)
	for i, a := range argv {
		argv[i] = strings.ReplaceAll(a, "{connection_file}", file)
	}
	return argv
}

// wrapPythonKernel makes Python's kernel start through jupyter.py.
func (m *Manager) wrapPythonKernel(argv []string) ([]string, error) {
	i := slices.Index(argv, "-m")
	if i < 0 || i+1 == len(argv) || argv[i+1] != "ipykernel_launcher" {
		return argv, nil
	}
	path, err := m.install("jupyter.py")
	return slices.Replace(argv, i, i+2, path), err
}

// connect waits until the kernel answers, or has died trying to start.
func (k *jupyterKernel) connect(ctx context.Context, conn *jupyter.Connection) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-k.process.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	var err error
	if k.client, err = jupyter.Connect(ctx, conn); err == nil {
		return nil
	}
	e := bothy.Errorf(bothy.CodeInternal, "the kernel did not start").
		WithHint("Its output is among the sandbox's processes.").Because(err)
	if res, dead := k.died(); dead {
		e.Detail = "the kernel ended while it started: " + k.lastOutput()
		if res.Hint != "" {
			e.Hint = res.Hint
		}
	}
	return e
}

// lastOutput returns the tail of the output of the kernel's process.
func (k *jupyterKernel) lastOutput() string {
	_, end := k.process.Output()
	r := k.process.Attach(max(end-400, 0))
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var b strings.Builder
	for {
		c, err := r.Next(ctx, nil)
		if err != nil {
			return strings.ToValidUTF8(strings.TrimSpace(b.String()), "?")
		}
		b.Write(c.Data)
	}
}

func (k *jupyterKernel) cleanUp() {
	k.once.Do(func() {
		if k.client != nil {
			k.client.Close()
		}
		os.RemoveAll(k.dir)
	})
}

func (k *jupyterKernel) run(code string, quiet bool, fn func(Output) error) (Result, error) {
	var res Result
	reply, err := k.client.Execute(context.Background(), code, jupyter.Options{Silent: quiet}, func(o jupyter.Output) error {
		switch {
		case o.Error != nil:
			res.Error = &bothy.CodeError{Name: o.Error.Name, Value: o.Error.Value, Traceback: plain(o.Error.Traceback)}
		case quiet:
		case o.Data != nil:
			return fn(Output{Data: textBundle(o.Data), Value: o.Value})
		case o.Text != "":
			return fn(Output{Stream: o.Stream, Text: o.Text})
		}
		return nil
	})
	res.ExecutionCount, res.Truncated = reply.ExecutionCount, reply.Truncated
	if errors.Is(err, jupyter.ErrClosed) {
		k.waitDead()
		return res, errDied
	}
	return res, err
}

// waitDead waits until the process whose connection has broken is reaped, so that the reason is
// known. A process that keeps running without its connection is useless.
func (k *jupyterKernel) waitDead() {
	select {
	case <-k.process.Done():
	case <-time.After(time.Second):
		k.process.Kill()
	}
}

func (k *jupyterKernel) interrupt() {
	if k.spec.Interrupt != "message" {
		_ = k.process.Signal(syscall.SIGINT)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), interruptTime)
	defer cancel()
	_ = k.client.Interrupt(ctx)
}

func (k *jupyterKernel) kill() {
	k.process.Kill()
	k.cleanUp()
}

func (k *jupyterKernel) died() (Result, bool) {
	if res, dead := died(k.process); dead {
		return res, true
	}
	select {
	case <-k.client.Closed():
		return Result{}, true
	default:
		return Result{}, false
	}
}
