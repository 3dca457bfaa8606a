package builds_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

const engine = "gvisor"

func open(t *testing.T, dir string, o builds.Options) *builds.Store {
	t.Helper()
	o.Speaks = map[string]builds.Range{engine: {Oldest: 2, Newest: 3}}
	s, err := builds.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bring adds a file to the store as package embedded does.
func bring(t *testing.T, dir, role, content string) builds.Source {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	path := filepath.Join(dir, role+"-"+hex.EncodeToString(sum[:]))
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return builds.Source{From: path, Role: role}
}

// put opens the store as a server of a build does: with its own sentry, and a guest that all builds
// share.
func put(t *testing.T, dir, name string, o builds.Options) *builds.Store {
	t.Helper()
	s := open(t, dir, o)
	if err := record(t, s, name); err != nil {
		t.Fatal(err)
	}
	return s
}

func record(t *testing.T, s *builds.Store, name string) error {
	t.Helper()
	sources := []builds.Source{bring(t, s.Dir(), "sentry", "sentry of "+name), bring(t, s.Dir(), "guest", "guest")}
	for _, src := range sources {
		s.Pin(src.From)
	}
	_, err := s.Put(builds.Build{Name: name, Engine: engine, Versions: []string{"version-of-" + name}, Protocol: 3, Stamp: name}, sources)
	return err
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	all, err := builds.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		list = append(list, b.Name)
	}
	slices.Sort(list)
	return list
}

// files returns the contents of the files in the folder, except for the records.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch b, err := os.ReadFile(filepath.Join(dir, e.Name())); {
		case e.Name() == "builds":
		case err != nil || strings.HasPrefix(e.Name(), "."):
			list = append(list, e.Name())
		default:
			list = append(list, string(b))
		}
	}
	slices.Sort(list)
	return list
}

func need(list ...string) builds.Needed {
	return func(context.Context) (map[string]int, error) {
		m := map[string]int{}
		for _, n := range list {
			m[n]++
		}
		return m, nil
	}
}

func sweep(t *testing.T, s *builds.Store, needed builds.Needed) []string {
	t.Helper()
	gone, err := s.Sweep(t.Context(), needed)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(gone)
	return gone
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s are %q, want %q", what, got, want)
	}
}

func why(err error) string { return bothy.AsError(err).Detail }

func TestEarlierBuildIsHeldWhole(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "build-a", builds.Options{})
	s := put(t, dir, "build-b", builds.Options{})
	h, err := s.Hold(engine, "build-a")
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[string]string{"sentry": "sentry of build-a", "guest": "guest"} {
		if b, err := os.ReadFile(h.Path(role)); string(b) != want {
			t.Errorf("the %s is %q, %v", role, b, err)
		}
	}
	if h.Path("kernel") != "" || h.TreePath() != "" {
		t.Error("it claims files that it lacks")
	}
	same(t, "what went while held", sweep(t, s, need()))
	h.Release()
	h.Release()
	same(t, "what went then", sweep(t, s, need()), "build-a")
	same(t, "files", files(t, dir), "guest", "sentry of build-b")
}

func TestSweepLeavesWhatIsNeeded(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"build-a", "build-b", "build-c"} {
		put(t, dir, n, builds.Options{})
	}
	s := put(t, dir, "build-d", builds.Options{})
	same(t, "gone", sweep(t, s, need("build-b", "build-b", "build-x")), "build-a", "build-c")
	same(t, "left", names(t, dir), "build-b", "build-d")
	// The newest build of an engine that this server has not opened is kept.
	if err := os.RemoveAll(filepath.Join(dir, "builds", "build-b.json")); err != nil {
		t.Fatal(err)
	}
	o := open(t, dir, builds.Options{})
	same(t, "gone without an engine", sweep(t, o, need()))
	same(t, "left without an engine", names(t, dir), "build-d")
	same(t, "files", files(t, dir), "guest", "sentry of build-d")
}

// TestSweepDoesNotOvertake starts a machine, and ends another after its snapshot was written, while the
// snapshots are being listed.
func TestSweepDoesNotOvertake(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "build-a", builds.Options{})
	put(t, dir, "build-b", builds.Options{})
	s := put(t, dir, "build-c", builds.Options{})
	going, err := s.Hold(engine, "build-a")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "gone", sweep(t, s, func(context.Context) (map[string]int, error) {
		going.Release()
		coming, err := s.Hold(engine, "build-b")
		if err != nil {
			t.Error(err)
		}
		coming.Release()
		return nil, nil
	}))
	same(t, "gone later", sweep(t, s, need()), "build-a", "build-b")
}

func TestSweepStopsWhereNeedIsNotKnown(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "build-a", builds.Options{})
	s := put(t, dir, "build-b", builds.Options{})
	if _, err := s.Sweep(t.Context(), func(context.Context) (map[string]int, error) { return nil, errors.New("no") }); err == nil {
		t.Error("it continued")
	}
	same(t, "left", names(t, dir), "build-a", "build-b")
}

func TestBoundTakesTheLongestUnused(t *testing.T) {
	dir := t.TempDir()
	for i, n := range []string{"build-a", "build-b", "build-c"} {
		put(t, dir, n, builds.Options{})
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "builds", n+".json"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(len("sentry of build-a"))
	s := put(t, dir, "build-d", builds.Options{MaxBytes: 2 * size}) // build-d uses the guest too
	all := need("build-a", "build-b", "build-c")
	h, err := s.Hold(engine, "build-a") // so that it was used last
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	same(t, "gone", sweep(t, s, all), "build-b")
	same(t, "gone again", sweep(t, s, all))
	if _, err := s.Hold(engine, "build-b"); bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(why(err), "not kept") {
		t.Errorf("holding a removed build: %v", err)
	}
}

// With shared builds, one that snapshots need is removed only if it can be fetched again.
func TestBoundLeavesTheOnlyCopy(t *testing.T) {
	dir := t.TempDir()
	for i, n := range []string{"build-a", "build-b", "build-c"} {
		put(t, dir, n, builds.Options{})
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "builds", n+".json"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	away := errors.New("the database is unavailable")
	there, err := map[string]bool{"build-b": true}, error(nil)
	s := put(t, dir, "build-d", builds.Options{MaxBytes: 1, Elsewhere: func(_ context.Context, name string) (bool, error) { return there[name], err }})
	all := need("build-a", "build-b")
	same(t, "gone", sweep(t, s, all), "build-b", "build-c") // not needed by anything
	err = away
	if gone, err := s.Sweep(t.Context(), all); !errors.Is(err, away) || len(gone) != 0 {
		t.Errorf("while it is unknown what other hosts have, %q were removed, %v", gone, err)
	}
	there["build-a"], err = true, nil
	same(t, "gone", sweep(t, s, all), "build-a")
}

func TestDamagedBuildIsNotUsed(t *testing.T) {
	for what, harm := range map[string]func(path string) error{
		"changed":           func(p string) error { return os.WriteFile(p, []byte("sentry of builD-a"), 0o755) },
		"shorter":           func(p string) error { return os.Truncate(p, 3) },
		"gone":              os.Remove,
		"others may write":  func(p string) error { return os.Chmod(p, 0o777) },
		"another's":         func(p string) error { return os.Chown(p, 12345, 0) },
		"a link":            func(p string) error { return errors.Join(os.Rename(p, p+"x"), os.Symlink(p+"x", p)) },
		"folder for others": func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "build-a", builds.Options{})
			s := put(t, dir, "build-b", builds.Options{})
			h, err := s.Hold(engine, "build-a") // so that it has been verified
			if err != nil {
				t.Fatal(err)
			}
			path := h.Path("sentry")
			h.Release()
			if os.Geteuid() != 0 && what == "another's" {
				t.Skip("needs root")
			}
			time.Sleep(10 * time.Millisecond) // for the resolution of file times
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Hold(engine, "build-a"); bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(why(err), "damaged") {
				t.Errorf("holding it: %v", err)
			}
		})
	}
}

func TestWhatCannotBeUsedSaysWhy(t *testing.T) {
	dir := t.TempDir()
	s := put(t, dir, "build-a", builds.Options{})
	src := bring(t, dir, "sentry", "x")
	for _, protocol := range []int{1, 4} {
		name := fmt.Sprint("build-of-protocol-", protocol)
		_, err := s.Put(builds.Build{Name: name, Engine: engine, Protocol: protocol}, []builds.Source{src})
		want := fmt.Sprintf("speaks version %d of the engine's protocol, and this server speaks 2 to 3", protocol)
		if !strings.Contains(why(err), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"build-z": "not kept", "": "not kept", "../../etc/passwd": "not kept", ".new-1": "not kept", "a/b": "not kept",
	} {
		if _, err := s.Hold(engine, name); bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(why(err), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := s.Hold("microvm", "build-a"); !strings.Contains(why(err), "of the engine gvisor") {
		t.Errorf("a build of another engine: %v", err)
	}
}

func TestRefusedBuilds(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "build-alpha", builds.Options{})
	sum := sha256.Sum256([]byte("sentry of build-alpha"))
	digest := hex.EncodeToString(sum[:])
	for entry, refused := range map[string]bool{
		"build-alpha": true, "build-al": true, digest: true, digest[:8]: true, "sha256:" + digest[:9]: true,
		"version-of-build-alpha": true, "version-of-build": false, "build-beta-2": false, "00000000": false,
	} {
		if err := builds.CheckRefuse([]string{entry}); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
		s := put(t, dir, "build-beta", builds.Options{Refuse: []string{entry}})
		h, err := s.Hold(engine, "build-alpha")
		h.Release()
		if refused && (bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(why(err), "engines.refuse")) || !refused && err != nil {
			t.Errorf("%s: %v", entry, err)
		}
		same(t, "kept though refused", sweep(t, s, need("build-alpha")))
	}
	for _, own := range []string{"build-beta", "version-of-build-beta"} {
		err := record(t, open(t, dir, builds.Options{Refuse: []string{own}}), "build-beta")
		if bothy.ErrorCode(err) != bothy.CodeEngineMissing || !strings.Contains(err.Error(), own) {
			t.Errorf("its own build, refused as %s: %v", own, err)
		}
	}
	for _, bad := range []string{"", "build", " build-alpha"} {
		if err := builds.CheckRefuse([]string{bad}); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestTreeIsMadeOfTheStoresFiles stores files of the host that have a place in a folder.
func TestTreeIsMadeOfTheStoresFiles(t *testing.T) {
	dir, host := t.TempDir(), t.TempDir()
	program := filepath.Join(host, "qemu")
	if err := os.WriteFile(program, []byte("qemu 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, builds.Options{})
	mine := func(name string) *builds.Held {
		t.Helper()
		h, err := s.Put(builds.Build{Name: name, Engine: engine, Protocol: 2, Stamp: name}, []builds.Source{
			{From: program, Place: "/usr/bin/qemu"}, {From: program, Role: "qemu"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	old := mine("build-1")
	if err := os.WriteFile(program, []byte("qemu 2"), 0o755); err != nil {
		t.Fatal(err)
	}
	now := mine("build-2")
	for h, want := range map[*builds.Held]string{old: "qemu 1", now: "qemu 2"} {
		path := filepath.Join(h.TreePath(), "usr/bin/qemu")
		b, err := os.ReadFile(path)
		if string(b) != want {
			t.Errorf("the file in the tree is %q, %v", b, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("it has mode %v, %v", info, err)
		}
	}
	// An incomplete tree is made again from verified files.
	if err := os.Remove(filepath.Join(old.TreePath(), "usr/bin/qemu")); err != nil {
		t.Fatal(err)
	}
	again, err := s.Hold(engine, "build-1")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(again.TreePath(), "usr/bin/qemu")); string(b) != "qemu 1" {
		t.Errorf("the new tree has %q", b)
	}
	again.Release()
	old.Release()
	same(t, "gone", sweep(t, s, need()), "build-1")
	// Files that this server added stay as long as it runs.
	same(t, "gone", sweep(t, open(t, dir, builds.Options{}), need()))
	if _, err := os.Stat(old.TreePath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unneeded tree still exists: %v", err)
	}
	if _, err := os.Stat(now.TreePath()); err != nil {
		t.Error(err)
	}
}

// TestKilledAnywhere kills a server at each step of its work on the folder. The next one must find every
// needed build complete, and leave nothing else.
func TestKilledAnywhere(t *testing.T) {
	for _, point := range []string{"builds.files", "builds.record", "builds.listed", "builds.dropped", "builds.removed"} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "build-a", builds.Options{})
			put(t, dir, "build-b", builds.Options{})
			killed := errors.New("killed")
			undo := failpoint.Set(point, func() error { return killed })
			s := open(t, dir, builds.Options{})
			err := record(t, s, "build-c")
			if err == nil {
				_, err = s.Sweep(t.Context(), need("build-b"))
			}
			undo()
			if !errors.Is(err, killed) {
				t.Fatalf("it was not killed: %v", err)
			}
			for _, half := range []string{".new-1", ".extract-2"} {
				if err := os.WriteFile(filepath.Join(dir, half), []byte("half"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, ".going-tree"), 0o700); err != nil {
				t.Fatal(err)
			}
			s = put(t, dir, "build-d", builds.Options{})
			h, err := s.Hold(engine, "build-b")
			if err != nil {
				t.Fatal(err)
			}
			h.Release()
			sweep(t, s, need("build-b"))
			sweep(t, s, need("build-b"))
			same(t, "left", names(t, dir), "build-b", "build-d")
			same(t, "files", files(t, dir), "guest", "sentry of build-b", "sentry of build-d")
		})
	}
}

// TestConcurrentUse holds and releases builds, and adds new ones, while others sweep.
func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "build-a", builds.Options{})
	s := put(t, dir, "build-b", builds.Options{MaxBytes: 1})
	first, err := s.Hold(engine, "build-a")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				h, err := s.Hold(engine, "build-a")
				if err != nil {
					t.Error(err)
					return
				}
				if b, _ := os.ReadFile(h.Path("sentry")); string(b) != "sentry of build-a" {
					t.Errorf("a held build has the sentry %q", b)
				}
				h.Release()
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range 20 {
				if _, err := s.Sweep(t.Context(), need("build-a")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	all.Go(func() {
		for i := range 20 {
			b := builds.Build{Name: fmt.Sprint("build-", i), Engine: engine, Protocol: 2, Stamp: fmt.Sprint(i)}
			if _, err := s.Put(b, []builds.Source{{From: program, Place: fmt.Sprint("/bin/", i)}}); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	first.Release()
}
