// Package confined runs parsers of what nobody vouches for in processes of their own: without the
// host's files, a network or rights, and with limits of memory and time. Whatever such a parser
// does, it ends the process, and the caller gets an error.
package confined

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/internal/bounded"
)

// arg makes this program do a task, and nothing else.
const arg = "confined"

// nobody are users for the processes: ids that are no account's and no sandbox's. The second is
// for hosts that are themselves containers, with 65,536 ids.
var nobody = []int{1_901_000_000, 60_001}

// A Task is what a process of its own can do.
type Task struct {
	Name string
	// Memory limits the memory of the process in bytes, Seconds its time on a processor, and Output
	// what it may write.
	Memory, Seconds, Output int64
	// Run does it. It has no files but in, and takes the memory that counts as the request's from ctx.
	Run func(ctx context.Context, args []string, in *os.File, out io.Writer) error
}

// tasks are what this program does when Do starts it again.
var tasks = map[string]Task{}

// Serve makes tasks possible in this program, whose main function calls it before anything else. It
// returns the function that a process started by Do must run instead, or else nil.
func Serve(list ...Task) func() int {
	for _, t := range append(list, nothing) {
		tasks[t.Name] = t
	}
	if len(os.Args) == 3 && os.Args[1] == arg && os.Getpid() == 1 {
		return func() int { return run(tasks[os.Args[2]]) }
	}
	return nil
}

// nothing shows whether this host lets the server confine a process.
var nothing = Task{Name: "do nothing", Memory: 256 << 20, Seconds: 5, Run: func(context.Context, []string, *os.File, io.Writer) error { return nil }}

var allowed bool

// cmdDelay is how long to wait for who reads and writes after the process has ended.
const cmdDelay = time.Second

// Try finds out whether this program may confine processes on this host. Possible is false before.
// Call it once, before anything that others send is read.
func Try(ctx context.Context) error {
	err := nothing.Do(ctx, nil, io.Discard)
	allowed = err == nil
	return err
}

// Possible reports whether Try has succeeded.
func Possible() bool { return allowed }

// Do does a task in a process of its own: a user of no other program, in namespaces without a
// network and with an empty read-only root, without capabilities and with no way to gain any. It
// reads in and writes to out, and ends with ctx. A limit or refusal that the task reports is an
// error that errors.As finds.
func (t Task) Do(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	if tasks[t.Name].Run == nil {
		return t.unable(errors.New("this program does not serve it"))
	}
	var err error
	for _, user := range nobody {
		if err = t.as(ctx, user, in, out, args); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return err
		} // else the id is not one of this host's
	}
	return err
}

// Open is Do for who reads what the task writes. Close ends the process.
func (t Task) Open(ctx context.Context, in io.Reader, args ...string) (io.ReadCloser, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, t.unable(err)
	}
	widen(from)
	ctx, stop := context.WithCancel(ctx)
	o := &output{from: from, left: t.Output, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		defer to.Close()
		o.err = t.Do(ctx, in, pipe{to}, args...)
	}()
	return o, nil
}

// A pipe is given to a process as it is: who reads it counts.
type pipe struct{ *os.File }

// widen lets a pipe hold a megabyte, so that two processes seldom wait for each other.
func widen(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}

// An output is what a process writes.
type output struct {
	from *os.File
	left int64
	stop func()
	done chan struct{}
	err  error
}

// Read implements io.Reader.
func (o *output) Read(p []byte) (int, error) {
	n, err := o.from.Read(p)
	if o.left -= int64(n); o.left < 0 {
		return 0, errTooLarge
	}
	if err == io.EOF {
		if <-o.done; o.err != nil {
			err = o.err
		}
	}
	return n, err
}

// Close ends the process.
func (o *output) Close() error {
	o.stop()
	o.from.Close()
	<-o.done
	return nil
}

func (t Task) as(ctx context.Context, user int, in io.Reader, out io.Writer, args []string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ours, theirs, err := pair()
	if err != nil {
		return t.unable(err)
	}
	defer ours.Close()
	source, sink, complaint := &source{r: in}, &sink{w: out, left: t.Output}, &head{}
	fed := func() {}
	if _, ok := in.(*os.File); !ok && in != nil {
		stdin, feed, err := os.Pipe()
		if err != nil {
			return t.unable(err)
		}
		defer stdin.Close()
		defer feed.Close()
		widen(stdin)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(feed, source)
			feed.Close()
		}()
		in = stdin
		fed = func() { // exec would wait as long as a caller sends nothing
			stdin.Close()
			feed.Close()
			select {
			case <-done:
			case <-time.After(cmdDelay):
			}
		}
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", arg, t.Name)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", []string{"GOMAXPROCS=1", "GOGC=400"}, cmdDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = in, sink, complaint, []*os.File{theirs}
	if p, ok := out.(pipe); ok {
		cmd.Stdout = p.File
	}
	ids := []syscall.SysProcIDMap{{HostID: user, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{}, UidMappings: ids, GidMappings: ids, Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return t.unable(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		if err := settle(ctx, ours, args, t.Memory); err != nil {
			stop(err)
		}
	}()
	err = cmd.Wait()
	fed()
	ours.Close()
	<-settled
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case sink.err != nil:
		return sink.err
	case source.failed() != nil:
		return source.failed()
	case err != nil:
		return t.died(complaint.Bytes(), cmd.ProcessState, err)
	}
	return nil
}

func (t Task) unable(err error) error {
	return fmt.Errorf("a process to %s cannot be started: %w", t.Name, err)
}

// died is the error of a process that has failed.
func (t Task) died(complaint []byte, state *os.ProcessState, err error) error {
	if said := understand(complaint); said != nil {
		return said
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(complaint)), "\n")
	switch used := state.SystemTime() + state.UserTime(); {
	case used > time.Duration(t.Seconds)*time.Second/2: // the kernel counts for the limit in another way
		first = fmt.Sprintf("it took more than %d seconds of a processor", t.Seconds)
	case bytes.Contains(complaint, []byte("out of memory")) || bytes.Contains(complaint, []byte("cannot allocate memory")):
		first = fmt.Sprintf("it needs more than %d MB of memory", t.Memory>>20)
	case first == "":
		first = err.Error()
	}
	return fmt.Errorf("the process to %s has died: %s", t.Name, bounded.Short(first))
}

// pair returns two ends of a connection.
func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	one := os.NewFile(uintptr(fds[0]), "")
	defer one.Close() // FileConn has a copy
	theirs = os.NewFile(uintptr(fds[1]), "")
	if ours, err = net.FileConn(one); err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// A source is a reader that keeps its error.
type source struct {
	r   io.Reader
	err atomic.Pointer[error]
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err.Store(&err)
	}
	return n, err
}

func (s *source) failed() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

var errTooLarge = errors.New("what is in it is too large")

// A sink is a writer that keeps its first error, and takes at most left bytes.
type sink struct {
	w    io.Writer
	left int64
	err  error
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (n int, err error) {
	if s.left -= int64(len(p)); s.left < 0 {
		err = errTooLarge
	} else {
		n, err = s.w.Write(p)
	}
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// A head keeps the beginning of what is written.
type head struct{ bytes.Buffer }

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Buffer.Write(p[:max(0, min(len(p), maxComplaint-h.Len()))])
	return len(p), nil
}
