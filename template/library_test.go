package template

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// library returns a library with templates of these names, all built from one small image.
func library(t *testing.T, opts Options, names ...string) *Library {
	t.Helper()
	l := NewLibrary(t.TempDir(), opts)
	ref := push(t, small(t))
	for _, n := range names {
		_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: n, Image: ref}, nil)
		must(t, err)
	}
	return l
}

func TestTemplatesAreListedByName(t *testing.T) {
	l := library(t, Options{}, "two", "one")
	list, err := l.Templates(as(t, bothy.ScopeTemplatesRead))
	must(t, err)
	if len(list) != 2 || list[0].Name != "one" || list[1].Name != "two" {
		t.Fatalf("listed %v", list)
	}
	if _, err := os.Stat(row(t, l, list[0]).RootFS); err != nil {
		t.Error(err)
	}
}

func TestAnEmptyFolderHasNoTemplates(t *testing.T) {
	l := NewLibrary(filepath.Join(t.TempDir(), "not there"), Options{})
	list, err := l.Templates(as(t, bothy.ScopeTemplatesRead))
	if err != nil || len(list) != 0 {
		t.Fatalf("listed %v, %v", list, err)
	}
}

func TestAMissingTemplatesErrorListsOthers(t *testing.T) {
	l := library(t, Options{}, "tools")
	_, err := l.Template(as(t, bothy.ScopeTemplatesRead), "node-22")
	fails(t, err, bothy.CodeTemplateNotFound, "node-22", "tools", "bothy template build node-22")
	_, err = l.Template(as(t, bothy.ScopeTemplatesRead), "other")
	fails(t, err, bothy.CodeTemplateNotFound, "other", "tools", "python-3.12")
}

func TestANameThatIsAPathIsRefused(t *testing.T) {
	l := library(t, Options{}, "tools")
	for _, name := range []string{"", "..", "../tools", "tools/../x", ".build", ".projects/p", "Tools", "tools+x", "tools:", "tools:a/b", "sha256:abc"} {
		_, err := l.Template(as(t, bothy.ScopeAdmin), name)
		fails(t, err, bothy.CodeInvalid)
		fails(t, l.RemoveTemplate(as(t, bothy.ScopeAdmin), name), bothy.CodeInvalid)
		_, err = l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: name, Image: "x"}, nil)
		fails(t, err, bothy.CodeInvalid)
	}
	for _, digest := range []string{"sha256:", "sha256:..", "sha256:current/../current", "sha256:../tools/current"} {
		_, err := l.Template(as(t, bothy.ScopeAdmin), digest)
		fails(t, err, bothy.CodeInvalid)
		_, err = l.Lookup(digest)
		fails(t, err, bothy.CodeTemplateNotFound)
	}
}

func TestAnImageIsFoundByItsDigestAfterItsNameMoved(t *testing.T) {
	inUse := func(context.Context, string, string, map[string]bool) (bool, error) { return true, nil }
	l := library(t, Options{InUse: inUse}, "tools")
	old, err := l.Lookup("tools")
	must(t, err)
	next := image(t, config("A=1"), layer(t, entry{name: "new", content: "new"}))
	_, err = l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, next), Force: true}, nil)
	must(t, err)
	now, err := l.Lookup("tools")
	must(t, err)
	if now.Digest == old.Digest {
		t.Fatal("the digest did not change")
	}
	again, err := l.findForCaller(as(t, bothy.ScopeTemplatesRead), old.Digest)
	must(t, err)
	if again.RootFS != old.RootFS || again.Digest != old.Digest {
		t.Errorf("found %v, want %v", again, old)
	}
}

func TestAnUnusedImageIsRemovedWhenItsNameMoves(t *testing.T) {
	free := func(context.Context, string, string, map[string]bool) (bool, error) { return false, nil }
	l := library(t, Options{InUse: free}, "tools")
	old, err := l.Lookup("tools")
	must(t, err)
	next := image(t, config("A=1"), layer(t, entry{name: "new", content: "new"}))
	_, err = l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, next), Force: true}, nil)
	must(t, err)
	_, err = l.Lookup(old.Digest)
	fails(t, err, bothy.CodeTemplateNotFound)
}

func TestDamagedTemplatesAreReported(t *testing.T) {
	for what, harm := range map[string]func(*testing.T, *store.Template){
		"cannot be read": func(t *testing.T, b *store.Template) {
			must(t, os.Remove(filepath.Join(filepath.Dir(b.RootFS), manifestName)))
		},
		"not valid JSON": func(t *testing.T, b *store.Template) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(b.RootFS), manifestName), []byte("{"), 0o644))
		},
		"version 9": func(t *testing.T, b *store.Template) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(b.RootFS), manifestName), []byte(`{"version":9}`), 0o644))
		},
		"bytes where the manifest says": func(t *testing.T, b *store.Template) { must(t, os.Truncate(b.RootFS, 4096)) },
		"image is missing":              func(t *testing.T, b *store.Template) { must(t, os.Remove(b.RootFS)) },
	} {
		t.Run(what, func(t *testing.T) {
			l := library(t, Options{}, "tools")
			b := age(t, l, "tools")
			harm(t, b)
			_, err := l.Lookup("tools")
			fails(t, err, bothy.CodeTemplateInvalid, what, "tools", "--force")
			if list, err := l.Templates(as(t, bothy.ScopeTemplatesRead)); err != nil || len(list) != 0 {
				t.Errorf("listed %v, %v", list, err)
			}
		})
	}
}

// libraryOf returns a library with one template, from an image.
func libraryOf(t *testing.T, img v1.Image) *Library {
	t.Helper()
	l := NewLibrary(t.TempDir(), Options{})
	_, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, img)}, nil)
	must(t, err)
	return l
}

// age gives a template's files an old time, so that the library caches it, and looks it up.
func age(t *testing.T, l *Library, name string) *store.Template {
	t.Helper()
	b, err := l.Lookup(name)
	must(t, err)
	then := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(filepath.Dir(b.RootFS), manifestName), then, then))
	must(t, os.Chtimes(b.RootFS, then, then))
	b, err = l.Lookup(name)
	must(t, err)
	return b
}

func TestAChangedTemplateIsReadAgain(t *testing.T) {
	l := libraryOf(t, image(t, config("A=1"), layer(t, entry{name: "x", content: "x"})))
	b := age(t, l, "tools")
	manifest := filepath.Join(filepath.Dir(b.RootFS), manifestName)
	info, err := os.Stat(manifest)
	must(t, err)
	data, err := os.ReadFile(manifest)
	must(t, err)
	// The same file, length and time.
	must(t, os.WriteFile(manifest, bytes.Replace(data, []byte(`"A": "1"`), []byte(`"A": "2"`), 1), 0o644))
	must(t, os.Chtimes(manifest, info.ModTime(), info.ModTime()))
	if again, err := l.Lookup("tools"); err != nil || again.Env["A"] != "1" {
		t.Errorf("a manifest with the same time was read again: %v, %v", again, err)
	}
	must(t, os.Chtimes(manifest, info.ModTime(), info.ModTime().Add(time.Second)))
	again, err := l.Lookup("tools")
	if must(t, err); again.Env["A"] != "2" {
		t.Errorf("after the change the environment is %v", again.Env)
	}
	// Two changes in quick succession may have the same time, so a recent manifest is not cached.
	must(t, os.WriteFile(manifest, data, 0o644))
	_, err = l.Lookup("tools")
	must(t, err)
	if n := len(l.shelf.all); n != 0 {
		t.Errorf("%d recent manifests are cached", n)
	}
}

func TestLookupReturnsACopy(t *testing.T) {
	l := libraryOf(t, image(t, config("A=1"), layer(t, entry{name: "x", content: "x"})))
	want := age(t, l, "tools")
	for range 3 {
		b, err := l.Lookup("tools")
		must(t, err)
		if !reflect.DeepEqual(b, want) {
			t.Fatalf("found %+v, want %+v", b, want)
		}
		b.Name, b.Env["A"], b.Env["B"] = "mine", "3", "4"
		for i := range b.Entrypoint {
			b.Entrypoint[i] = "mine"
		}
	}
}

func TestADamagedTemplateIsRebuilt(t *testing.T) {
	l := library(t, Options{}, "tools")
	b, err := l.Lookup("tools")
	must(t, err)
	must(t, os.Truncate(b.RootFS, 4096))
	_, err = l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "tools", Image: push(t, small(t))}, nil)
	must(t, err)
	_, err = l.Lookup("tools")
	must(t, err)
}

func TestRemove(t *testing.T) {
	l := library(t, Options{}, "one", "two")
	must(t, l.RemoveTemplate(as(t, bothy.ScopeTemplatesWrite), "one"))
	_, err := l.Lookup("one")
	fails(t, err, bothy.CodeTemplateNotFound, "two")
	fails(t, l.RemoveTemplate(as(t, bothy.ScopeTemplatesWrite), "one"), bothy.CodeTemplateNotFound)
	_, err = l.Lookup("two")
	must(t, err)
}

func TestATemplateInUseStays(t *testing.T) {
	var asked string
	l := library(t, Options{InUse: func(_ context.Context, _, digest string, _ map[string]bool) (bool, error) {
		asked = digest
		return true, nil
	}}, "tools")
	fails(t, l.RemoveTemplate(as(t, bothy.ScopeTemplatesWrite), "tools"), bothy.CodeTemplateInUse, "tools")
	b, err := l.Lookup("tools")
	must(t, err)
	if asked != b.Digest {
		t.Errorf("asked about %s, want %s", asked, b.Digest)
	}
}

func TestATemplateStaysWhenItsUseIsUnknown(t *testing.T) {
	broken := errors.New("the store is unavailable")
	l := library(t, Options{InUse: func(context.Context, string, string, map[string]bool) (bool, error) { return false, broken }}, "tools")
	if err := l.RemoveTemplate(as(t, bothy.ScopeTemplatesWrite), "tools"); !errors.Is(err, broken) {
		t.Fatalf("removed: %v", err)
	}
	_, err := l.Lookup("tools")
	must(t, err)
}

func TestScopes(t *testing.T) {
	l := library(t, Options{}, "tools")
	other := []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite}
	read := append(other, bothy.ScopeTemplatesRead)
	for name, call := range map[string]func(context.Context) error{
		"list":   func(ctx context.Context) error { _, err := l.Templates(ctx); return err },
		"get":    func(ctx context.Context) error { _, err := l.Template(ctx, "tools"); return err },
		"remove": func(ctx context.Context) error { return l.RemoveTemplate(ctx, "tools") },
		"build": func(ctx context.Context) error {
			_, err := l.BuildTemplate(ctx, bothy.TemplateBuild{Name: "tools"}, nil)
			return err
		},
		"build from a file of the server": func(ctx context.Context) error {
			_, err := l.BuildTemplate(ctx, bothy.TemplateBuild{Name: "tools", Image: "/etc/shadow"}, nil)
			return err
		},
	} {
		fails(t, call(t.Context()), bothy.CodeUnauthenticated)
		fails(t, call(as(t, other...)), bothy.CodeForbidden)
		if name == "remove" || name == "build" {
			fails(t, call(as(t, read...)), bothy.CodeForbidden)
		}
		if name == "build from a file of the server" {
			fails(t, call(as(t, bothy.ScopeTemplatesWrite)), bothy.CodeForbidden)
		}
	}
	_, err := l.Lookup("tools")
	must(t, err)
}
