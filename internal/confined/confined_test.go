package confined

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
)

func task(name string, f func(ctx context.Context, args []string, in *os.File, out io.Writer) error) Task {
	return Task{Name: name, Memory: 256 << 20, Seconds: 1, Output: 1 << 20, Run: f}
}

var (
	looks = task("look around", func(_ context.Context, _ []string, _ *os.File, out io.Writer) error { return look(out) })
	// copies writes its arguments and what it reads.
	copies = task("copy", func(_ context.Context, args []string, in *os.File, out io.Writer) error {
		_, err := fmt.Fprint(out, args)
		if err == nil {
			_, err = io.Copy(out, in)
		}
		return err
	})
	panics = task("panic", func(context.Context, []string, *os.File, io.Writer) error { panic("of the parser") })
	eats   = task("eat", func(_ context.Context, _ []string, _ *os.File, out io.Writer) error {
		_, err := out.Write(bytes.Repeat([]byte{1}, 1<<30))
		return err
	})
	loops = task("loop", func(context.Context, []string, *os.File, io.Writer) error {
		for i := 0; ; i++ {
			if i < 0 {
				return nil
			}
		}
	})
	refuses = task("refuse", func(_ context.Context, args []string, _ *os.File, _ io.Writer) error {
		limit := &bounded.Error{Limit: 7, What: "files"}
		if args[0] == "limit" {
			return fmt.Errorf("in a/b: %w", limit)
		}
		return bothy.Errorf(bothy.CodeTooLarge, "it has %v", limit).WithHint("Use %s.", "less").Because(limit)
	})
	takes = task("take memory", func(ctx context.Context, _ []string, _ *os.File, out io.Writer) error {
		for range 4 {
			if err := bothy.TakeMemory(ctx, 10<<20); err != nil {
				return err
			}
		}
		bothy.GiveMemory(ctx, 30<<20)
		_, err := fmt.Fprint(out, "taken")
		return err
	})
)

func TestMain(m *testing.M) {
	if run := Serve(looks, copies, panics, eats, loops, refuses, takes); run != nil {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// look prints what a confined process can do.
func look(w io.Writer) error {
	root, err := os.ReadDir("/")
	fmt.Fprintln(w, "root", len(root), err)
	_, err = os.ReadFile("/etc/passwd")
	fmt.Fprintln(w, "passwd", errors.Is(err, os.ErrNotExist))
	fmt.Fprintln(w, "write", errors.Is(os.WriteFile("/x", nil, 0o600), unix.EROFS))
	fmt.Fprintln(w, "mount", unix.Mount("none", "/", "tmpfs", 0, "") == unix.EPERM)
	var caps [2]unix.CapUserData
	err = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	fmt.Fprintln(w, "capabilities", caps[0].Effective|caps[0].Permitted|caps[1].Effective|caps[1].Permitted, err)
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	fmt.Fprintln(w, "no new rights", set, err)
	up := 0
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			up++
		}
	}
	_, err = fmt.Fprintln(w, "network", up)
	return err
}

func needRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
}

// The process has nothing of the host.
func TestConfined(t *testing.T) {
	needRoot(t)
	var out bytes.Buffer
	if err := looks.Do(t.Context(), nil, &out); err != nil {
		t.Fatal(err, out.String())
	}
	want := "root 0 <nil>\npasswd true\nwrite true\nmount true\ncapabilities 0 <nil>\nno new rights 1 <nil>\nnetwork 0\n"
	if out.String() != want {
		t.Errorf("it reports\n%s, want\n%s", out.String(), want)
	}
}

// On the host it is a user that no other program has, and the first to be ended for memory. It ends
// when nobody takes what it writes.
func TestConfinedUser(t *testing.T) {
	needRoot(t)
	in, feed := io.Pipe()
	defer feed.Close()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := copies.Do(t.Context(), in, w, "x")
		w.CloseWithError(err)
		done <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil { // it waits for more to read
		t.Fatal(err)
	}
	found := false
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if !bytes.Contains(line, []byte("\x00"+arg+"\x00copy\x00")) {
			continue
		}
		status, _ := os.ReadFile("/proc/" + e.Name() + "/status")
		score, _ := os.ReadFile("/proc/" + e.Name() + "/oom_score_adj")
		for _, user := range nobody {
			found = found || bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t%d\t%d\t%d\n", user, user, user, user)) && string(score) == "1000\n"
		}
	}
	if !found {
		t.Error("there is no process with the user's id that ends first")
	}
	r.CloseWithError(errors.New("enough"))
	if _, err := feed.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	if err := <-done; err == nil || err.Error() != "enough" {
		t.Errorf("it ended with %v", err)
	}
}

// Whatever happens to the process, the error says what it was.
func TestErrors(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		task Task
		in   io.Reader
		want string
	}{
		{panics, nil, "the process to panic has died: panic: of the parser"},
		{eats, nil, "the process to eat has died: it needs more than 256 MB of memory"},
		{loops, nil, "the process to loop has died: it took more than 1 seconds of a processor"},
		{copies, strings.NewReader(strings.Repeat("x", 2<<20)), "what is in it is too large"},
		{copies, io.MultiReader(strings.NewReader("x"), failing{}), "the reader's error"},
		{task("fly", nil), nil, "does not serve it"},
	} {
		if Raced && c.task.Name == eats.Name {
			continue // it has no limit of its memory
		}
		if err := c.task.Do(t.Context(), c.in, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("to %s: %v", c.task.Name, err)
		}
	}
	err := refuses.Do(t.Context(), nil, io.Discard, "limit")
	if limit, ok := errors.AsType[*bounded.Error](err); !ok || limit.Limit != 7 || err.Error() != "in a/b: more than 7 files" {
		t.Errorf("a limit: %v", err)
	}
	err = refuses.Do(t.Context(), nil, io.Discard, "more")
	if e, ok := errors.AsType[*bothy.Error](err); !ok || e.Code != bothy.CodeTooLarge || e.Hint != "Use less." || e.Detail != "it has more than 7 files" {
		t.Errorf("a refusal: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if err := copies.Do(ctx, strings.NewReader(""), io.Discard); err == nil {
		t.Error("it outlives its context")
	}
}

// A process that ends does not wait for a caller who sends nothing more.
func TestASilentCaller(t *testing.T) {
	needRoot(t)
	in, feed := io.Pipe()
	defer feed.Close()
	if err := panics.Do(t.Context(), in, io.Discard); err == nil || !strings.Contains(err.Error(), "of the parser") {
		t.Error(err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the reader's error") }

// An accountant grants memory up to a limit.
type accountant struct{ held, most, left atomic.Int64 }

func (a *accountant) Hold(_ context.Context, n int64) error {
	if a.left.Add(-n) < 0 {
		return bothy.Errorf(bothy.CodeRateLimited, "full")
	}
	a.most.Store(max(a.most.Load(), a.held.Add(n)))
	return nil
}

func (a *accountant) Give(n int64) { a.held.Add(-n) }

// What the process holds is its request's, which may not have it.
func TestMemoryIsTheRequests(t *testing.T) {
	needRoot(t)
	a := &accountant{}
	a.left.Store(40 << 20)
	var out bytes.Buffer
	if err := takes.Do(bothy.WithMemoryAccount(t.Context(), a), nil, &out); err != nil || out.String() != "taken" {
		t.Fatal(err, out.String())
	}
	if a.most.Load() != 40<<20 || a.held.Load() != 0 {
		t.Errorf("at most %d, and %d in the end", a.most.Load(), a.held.Load())
	}
	a = &accountant{}
	a.left.Store(39 << 20)
	if err := takes.Do(bothy.WithMemoryAccount(t.Context(), a), nil, io.Discard); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("without memory: %v", err)
	}
	if a.held.Load() != 0 {
		t.Errorf("%d bytes are held in the end", a.held.Load())
	}
}

// Try finds that this host can do it.
func TestTry(t *testing.T) {
	needRoot(t)
	if err := Try(t.Context()); err != nil || !Possible() {
		t.Error(err)
	}
}

// FuzzUnderstand looks for what a process could print that is no error, or a panic.
func FuzzUnderstand(f *testing.F) {
	f.Add(explain(&bounded.Error{Limit: 5, What: "files"}))
	f.Add(explain(bothy.Errorf(bothy.CodeTooLarge, "%s", "x")))
	f.Add([]byte("panic: x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := understand(text); err != nil && err.Error() == "" {
			t.Errorf("%q is an empty error", text)
		}
	})
}
