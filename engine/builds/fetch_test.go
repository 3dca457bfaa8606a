package builds_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
)

// fetcher copies builds from another store.
func fetcher(t *testing.T, from *builds.Store, damage func(dir string)) (fetch func(name, dir string) (*builds.Build, error), calls *int) {
	calls = new(int)
	return func(name, dir string) (*builds.Build, error) {
		*calls++
		text, err := os.ReadFile(filepath.Join(from.Dir(), "builds", name+".json"))
		if err != nil {
			return nil, err
		}
		b := &builds.Build{}
		if err := json.Unmarshal(text, b); err != nil {
			return nil, err
		}
		for _, f := range b.Files {
			in, err := from.OpenFile(name, f.Name)
			if err != nil {
				return nil, err
			}
			content, err := io.ReadAll(in)
			if err = errors.Join(err, in.Close(), os.WriteFile(filepath.Join(dir, f.Name), content, 0o600)); err != nil {
				return nil, err
			}
		}
		if damage != nil {
			damage(dir)
		}
		return b, nil
	}, calls
}

// A build of another host is fetched once and verified before it is used. A refused build, or one with
// different content, is not accepted.
func TestABuildOfAnotherHost(t *testing.T) {
	far := put(t, t.TempDir(), "build-a", builds.Options{})
	fetch, calls := fetcher(t, far, nil)
	dir := t.TempDir()
	s := put(t, dir, "build-b", builds.Options{Fetch: fetch})
	*calls = 0
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			h, err := s.Hold(engine, "build-a")
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(h.Path("sentry")); string(b) != "sentry of build-a" {
				t.Errorf("the sentry is %q, %v", b, err)
			}
			if info, err := os.Stat(h.Path("sentry")); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("the sentry has %v, %v", info, err)
			}
			h.Release()
		})
	}
	all.Wait()
	if *calls != 1 {
		t.Errorf("it was fetched %d times", *calls)
	}
	if _, err := s.Hold(engine, "build-x"); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("a build that no host has: %v", err)
	}
	sweep(t, s, need("build-a"))
	same(t, "left", names(t, dir), "build-a", "build-b")
	same(t, "gone", sweep(t, s, need()), "build-a")
	same(t, "files", files(t, dir), "guest", "sentry of build-b")

	refusing := put(t, t.TempDir(), "build-b", builds.Options{Fetch: fetch, Refuse: []string{"build-a-"}})
	if h, err := refusing.Hold(engine, "build-a"); err != nil {
		t.Error(err)
	} else {
		h.Release()
	}
	*calls = 0
	refusing = put(t, t.TempDir(), "build-b", builds.Options{Fetch: fetch, Refuse: []string{"build-a-too", "version-of-build-a"}})
	if _, err := refusing.Hold(engine, "build-a"); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("a build with a refused version: %v", err)
	}

	damaged, _ := fetcher(t, far, func(dir string) {
		all, _ := filepath.Glob(filepath.Join(dir, "sentry-*"))
		for _, path := range all {
			if err := os.WriteFile(path, []byte("sentry of somebody"), 0o755); err != nil {
				t.Error(err)
			}
		}
	})
	dir = t.TempDir()
	careful := put(t, dir, "build-b", builds.Options{Fetch: damaged})
	if _, err := careful.Hold(engine, "build-a"); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("a build with different content: %v", err)
	}
	same(t, "what is kept", names(t, dir), "build-b")
}

// A slow fetch does not delay others. A failed fetch is shared by all waiting callers, and tried again
// only after a while.
func TestBuildsOfOtherHostsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := put(t, t.TempDir(), "build-a", builds.Options{})
		quick, _ := fetcher(t, far, nil)
		var begun atomic.Int32
		away := make(chan struct{})
		s := put(t, t.TempDir(), "build-b", builds.Options{Fetch: func(name, dir string) (*builds.Build, error) {
			if name == "build-a" {
				return quick(name, dir)
			}
			begun.Add(1)
			<-away
			return nil, errors.New("away")
		}})
		var all sync.WaitGroup
		hold := func() {
			if _, err := s.Hold(engine, "build-slow"); bothy.ErrorCode(err) != bothy.CodeUnsupported {
				t.Error(err)
			}
		}
		for range 5 {
			all.Go(hold)
		}
		synctest.Wait()
		if h, err := s.Hold(engine, "build-a"); err != nil {
			t.Error(err)
		} else {
			h.Release()
		}
		close(away)
		all.Wait()
		hold()
		if n := begun.Load(); n != 1 {
			t.Errorf("it was requested %d times", n)
		}
		time.Sleep(time.Minute)
		hold()
		if n := begun.Load(); n != 2 {
			t.Errorf("after a while it was requested %d times", n)
		}
	})
}
