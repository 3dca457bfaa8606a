package template

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// Two servers share a folder of templates, and each knows only its own sandboxes.
func TestServersKeepEachOthersImages(t *testing.T) {
	used := map[string]string{} // images by the home of the server that needs them
	server := func(home string) Options {
		return Options{Home: home, InUse: func(_ context.Context, _, digest string, _ map[string]bool) (bool, error) {
			return used[home] == digest, nil
		}}
	}
	homeA, homeB := t.TempDir(), t.TempDir()
	a := library(t, server(homeA), "tools")
	b := NewLibrary(a.dir, server(homeB))
	operator := project(t, bothy.DefaultProject)
	old := adopted(t, a, operator, "app", other(t, a, "one"))
	found, err := a.LookupFor(t.Context(), "", "app") // for a new sandbox
	must(t, err)
	used[homeA] = found.Digest
	adopted(t, b, operator, "app", other(t, b, "two")) // the other server moves the name
	other(t, b, "three")
	must(t, b.Collect(operator))
	if _, err := a.LookupFor(t.Context(), "", old.Digest); err != nil {
		t.Fatal("the image of another server's sandbox was removed:", err)
	}
	must(t, b.RemoveTemplate(operator, "app"))
	must(t, b.RemoveTemplate(operator, "other"))
	if _, err := a.LookupFor(t.Context(), "", old.Digest); err != nil {
		t.Fatal("the image of another server's sandbox was removed:", err)
	}

	// A server that starts holds the images of its sandboxes, and releases those no longer needed.
	must(t, os.RemoveAll(filepath.Join(a.dir, holdsName)))
	a = NewLibrary(a.dir, server(homeA))
	must(t, a.Collect(operator))
	must(t, b.Collect(operator))
	if _, err := b.find("", old.Digest); err != nil {
		t.Fatal("the image was removed:", err)
	}
	delete(used, homeA)
	must(t, a.holds.sweep(t.Context(), func(string) (bool, error) { return false, nil }))
	must(t, b.Collect(operator))
	if _, err := b.find("", old.Digest); err != nil {
		t.Fatal("the image of a sandbox that may be starting was removed:", err)
	}
	a.holds.now = func() time.Time { return time.Now().Add(2 * holdLife) }
	must(t, a.Collect(operator))
	must(t, b.Collect(operator))
	_, err = b.find("", old.Digest)
	fails(t, err, bothy.CodeTemplateNotFound)
}

func TestAServerWithoutAHomeHoldsNothing(t *testing.T) {
	free := func(context.Context, string, string, map[string]bool) (bool, error) { return false, nil }
	home := t.TempDir()
	a := library(t, Options{Home: home, InUse: free}, "tools")
	b := NewLibrary(a.dir, Options{Home: t.TempDir(), InUse: free})
	operator := project(t, bothy.DefaultProject)
	made, err := a.LookupFor(t.Context(), "", "tools")
	must(t, err)
	if got := b.holds.holder(digestOf(made.Digest)); got != home {
		t.Errorf("the holder is %q", got)
	}
	must(t, os.RemoveAll(home))
	if got := b.holds.holder(digestOf(made.Digest)); got != "" {
		t.Errorf("the holder is %q", got)
	}
	must(t, b.RemoveTemplate(operator, "tools"))
	must(t, b.Collect(operator))
	if entries, _ := os.ReadDir(filepath.Join(a.dir, holdsName)); len(entries) > 0 {
		t.Errorf("files are left: %v", entries)
	}
}

// A starting server creates its folder before the file that names the owner, and others may look in
// between.
func TestAFolderWithoutAnOwnerIsKept(t *testing.T) {
	library := t.TempDir()
	a, b := newHolds(library, t.TempDir()), newHolds(library, t.TempDir())
	for name, damage := range map[string]func(string) error{
		"unsigned": os.Remove,
		"empty":    func(name string) error { return os.Truncate(name, 0) },
		"unreadable": func(name string) error {
			return errors.Join(os.Remove(name), os.Symlink(filepath.Base(name), name))
		},
	} {
		must(t, a.add("one"))
		must(t, damage(filepath.Join(a.own(), ownerName)))
		must(t, b.sweep(t.Context(), nil))
		if got := b.holder("one"); got != a.own() {
			t.Errorf("%s: the holder is %q", name, got)
		}
		a = newHolds(library, a.home) // restarted
		must(t, a.add("one"))
		if got := b.holder("one"); got != a.home {
			t.Errorf("%s: after a restart the holder is %q", name, got)
		}
	}
}

// Servers start while others sweep, and no owner's file is ever seen empty.
func TestServersStartWhileOthersSweep(t *testing.T) {
	library := t.TempDir()
	other := newHolds(library, t.TempDir())
	must(t, other.add("one"))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := other.sweep(ctx, func(string) (bool, error) { return true, nil }); err != nil {
					t.Error(err)
				}
				names, _ := filepath.Glob(filepath.Join(library, holdsName, "*", ownerName))
				for _, name := range names {
					if b, err := os.ReadFile(name); !errors.Is(err, fs.ErrNotExist) && (err != nil || len(b) == 0) {
						t.Errorf("an owner's file has %q: %v", b, err)
					}
				}
			}
		})
	}
	for range 50 {
		h := newHolds(library, t.TempDir())
		if err := h.add("one"); err != nil {
			t.Error(err)
		}
		if got := other.holder("one"); got == "" {
			t.Error("nobody holds the image")
		}
		must(t, os.RemoveAll(h.own()))
	}
	stop()
	wg.Wait()
}
