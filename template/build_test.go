package template

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

func TestAnExistingBuildIsReturnedAtOnce(t *testing.T) {
	l := library(t, Options{}, "tools")
	first, err := l.Lookup("tools")
	must(t, err)
	var events []bothy.BuildEvent
	again, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: "registry.invalid/none"},
		func(e bothy.BuildEvent) { events = append(events, e) })
	must(t, err)
	if again.Digest != first.Digest || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("built again: %v", again)
	}
	if len(events) != 1 || events[0].Template == nil || events[0].Percent != 100 {
		t.Errorf("events %v", events)
	}
}

func TestProgressGrowsAndEndsWithTheTemplate(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	var last bothy.BuildEvent
	steps := map[string]bool{}
	_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, small(t))}, func(e bothy.BuildEvent) {
		if e.Percent < last.Percent || e.Step == "" {
			t.Errorf("%+v follows %+v", e, last)
		}
		steps[e.Step], last = true, e
	})
	must(t, err)
	if last.Template == nil || last.Percent != 100 || len(steps) < 5 {
		t.Errorf("last %+v, steps %v", last, steps)
	}
}

func TestConcurrentBuildsOfOneNameRunOnce(t *testing.T) {
	dir := t.TempDir()
	ref := push(t, small(t))
	var mu sync.Mutex
	worked := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			// Each has its own library, since the lock is between processes.
			l := NewLibrary(dir, Options{})
			_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: ref}, func(e bothy.BuildEvent) {
				if e.Step == "publish" {
					mu.Lock()
					worked++
					mu.Unlock()
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if worked != 1 {
		t.Errorf("%d builds did the work, want 1", worked)
	}
}

func TestWaitingForAnotherBuildEndsWithTheCaller(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	unlock, err := l.lock(t.Context(), "tools", func() {})
	must(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(as(t, bothy.ScopeTemplatesWrite))
	_, err = l.BuildTemplate(ctx, bothy.TemplateBuild{Name: "tools", Image: "x"}, func(e bothy.BuildEvent) {
		if e.Step == "wait" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestFilesOfADeadBuildAreRemoved(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	left := filepath.Join(l.dir, ".build", "tools", "rootfs", "half")
	must(t, os.MkdirAll(left, 0o755))
	_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, small(t))}, nil)
	must(t, err)
	built, err := l.Lookup("tools")
	must(t, err)
	hasNot(t, unpackImageFile(t, built.RootFS), "half")
	if entries, err := os.ReadDir(filepath.Join(l.dir, ".build")); err != nil || len(entries) != 0 {
		t.Errorf("left in .build: %v, %v", entries, err)
	}
}

func TestAFailedBuildChangesNothing(t *testing.T) {
	l := library(t, Options{}, "tools")
	before := tree(t, filepath.Join(l.dir, "tools"))
	bad := image(t, v1.Config{}, layer(t, entry{name: "loop", symlink: "loop"}, entry{name: "loop/x", content: "1"}))
	var last bothy.BuildEvent
	_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, bad), Force: true},
		func(e bothy.BuildEvent) { last = e })
	fails(t, err, bothy.CodeTemplateInvalid)
	if last.Error == "" || last.Template != nil {
		t.Errorf("last event %+v", last)
	}
	if after := tree(t, filepath.Join(l.dir, "tools")); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("before %v, after %v", before, after)
	}
	_, err = l.Lookup("tools")
	must(t, err)
}

func TestACancelledBuildStops(t *testing.T) {
	ctx, cancel := context.WithCancel(as(t, bothy.ScopeTemplatesWrite))
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	l := NewLibrary(t.TempDir(), Options{})
	_, err := l.BuildTemplate(ctx, bothy.TemplateBuild{Name: "tools", Image: strings.TrimPrefix(s.URL, "http://") + "/x"}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestACommandDiesWithItsCallerAndItsChildren(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &build{log: func(e bothy.BuildEvent) {
		if e.Message == "ready" {
			cancel()
		}
	}}
	// The child keeps the pipe open, so this returns only if the child dies too.
	err := b.command(ctx, nil, "/bin/sh", "-c", "sleep 1000 & echo ready; wait")
	if err == nil {
		t.Fatal("the command succeeded")
	}
}

func TestAFailedCommandReportsItsLastLines(t *testing.T) {
	b := &build{log: func(bothy.BuildEvent) {}}
	err := b.command(t.Context(), []string{"WHAT=the mirror is down"}, "/bin/sh", "-c", `echo "E: $WHAT" >&2; exit 3`)
	if err == nil || !strings.Contains(err.Error(), "E: the mirror is down") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

func TestACommandsErrorIsFoundInItsOutput(t *testing.T) {
	b := &build{log: func(bothy.BuildEvent) {}}
	err := b.command(t.Context(), nil, "/bin/sh", "-c", `echo "E: no such suite"; seq 100; exit 1`)
	if err == nil || !strings.HasSuffix(err.Error(), ": E: no such suite") {
		t.Errorf("got %v", err)
	}
}

func TestACommandInheritsNothing(t *testing.T) {
	for range 12 { // descriptors that the parent did not close
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		must(t, err)
		defer unix.Close(fd)
	}
	defer unix.Umask(unix.Umask(0o077))
	var said []string
	b := &build{log: func(e bothy.BuildEvent) { said = append(said, e.Message) }}
	must(t, b.command(t.Context(), nil, "/bin/sh", "-c", "umask; cd /proc/self/fd; echo *"))
	// The shell itself has the folder open while it lists it.
	if got := strings.Join(said, " "); got != "0022 0 1 2 3" {
		t.Errorf("the umask and the descriptors are %q", got)
	}
}

func TestRequestsThatCannotBeBuilt(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	for _, c := range []struct {
		req  bothy.TemplateBuild
		code bothy.Code
		word string
	}{
		{bothy.TemplateBuild{Name: "nobody-knows"}, bothy.CodeInvalid, "python-3.12-bare"},
		{bothy.TemplateBuild{Name: "No Name", Image: "a"}, bothy.CodeInvalid, "No Name"},
	} {
		_, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), c.req, nil)
		fails(t, err, c.code, c.word)
	}
}

// A hook fails if any of its commands fails, such as a program that is missing in the new root.
func TestAHookFailsIfAnyOfItsCommandsDoes(t *testing.T) {
	for name, hook := range map[string]string{"debsIn": debsIn, "debsOut": debsOut, "localeArchive": localeArchive, "debconf": debconf} {
		root := t.TempDir() // has no programs
		must(t, os.MkdirAll(filepath.Join(root, "usr/lib/locale/C.utf8"), 0o755))
		must(t, os.MkdirAll(filepath.Join(root, "var/cache/apt/archives"), 0o755))
		debs := t.TempDir()
		must(t, os.WriteFile(filepath.Join(debs, "a.deb"), nil, 0o644))
		// The destination of the hooks' links exists already.
		must(t, os.WriteFile(filepath.Join(root, "var/cache/apt/archives/a.deb"), nil, 0o644))
		b := &build{log: func(bothy.BuildEvent) {}}
		if err := b.command(t.Context(), []string{"BOTHY_DEBS=" + debs}, "/bin/sh", "-c", hook, "hook", root); err == nil {
			t.Errorf("%s succeeded", name)
		}
	}
}

func TestMissingToolsAreNamedWithTheirPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fails(t, needTools("mmdebstrap"), bothy.CodeUnsupported, "mmdebstrap", "apt-get install mmdebstrap")
	fails(t, needTools("mkfs.erofs"), bothy.CodeUnsupported, "apt-get install erofs-utils")
}

func TestMissingDataFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BOTHY_SHARE", dir)
	_, err := NewLibrary(t.TempDir(), Options{}).shared("python-3.12.tar.zst")
	fails(t, err, bothy.CodeUnsupported, "python-3.12.tar.zst", dir, "make build")
}
