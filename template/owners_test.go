package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func project(t *testing.T, id string) context.Context {
	return bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: id, Scopes: []bothy.Scope{bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite}})
}

// adopted gives a project a template with the image of another.
func adopted(t *testing.T, l *Library, ctx context.Context, name string, of *store.Template) *store.Template {
	t.Helper()
	made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: name, CreatedAt: of.CreatedAt}}
	must(t, l.Adopt(ctx, made, of.RootFS))
	return made
}

// other builds the template "other" with this content.
func other(t *testing.T, l *Library, content string) *store.Template {
	t.Helper()
	img := image(t, config("A=1"), layer(t, entry{name: "new", content: content}))
	made, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "other", Image: push(t, img), Force: true}, nil)
	must(t, err)
	return row(t, l, made)
}

func names(list []*bothy.Template) string {
	s := ""
	for _, t := range list {
		s += t.Project + "/" + t.Ref() + " "
	}
	return s
}

func TestAProjectSeesItsOwnAndSharedTemplates(t *testing.T) {
	l := library(t, Options{}, "tools")
	tools, err := l.Lookup("tools")
	must(t, err)
	red, blue := project(t, "red"), project(t, "blue")
	secret := adopted(t, l, red, "team/app:v3", other(t, l, "red's"))
	must(t, l.remove(t.Context(), bothy.TemplateRef{Name: "other", Tag: bothy.DefaultTag}, false))

	list, err := l.Templates(red)
	must(t, err)
	if got := names(list); got != "red/team/app:v3 /tools " {
		t.Errorf("red sees %s", got)
	}
	list, err = l.Templates(blue)
	must(t, err)
	if got := names(list); got != "/tools " {
		t.Errorf("blue sees %s", got)
	}
	for _, ref := range []string{"team/app:v3", "team/app", secret.Digest, "team/app@" + secret.Digest} {
		_, err := l.Template(blue, ref)
		fails(t, err, bothy.CodeTemplateNotFound)
		_, err = l.LookupFor(t.Context(), "blue", ref)
		fails(t, err, bothy.CodeTemplateNotFound)
	}
	fails(t, l.RemoveTemplate(blue, "team/app:v3"), bothy.CodeTemplateNotFound)
	fails(t, l.RemoveTemplate(blue, "tools"), bothy.CodeForbidden, "is public")
	for _, ref := range []string{"team/app:v3", secret.Digest, "team/app@" + secret.Digest, "tools@" + tools.Digest} {
		if _, err := l.Template(red, ref); err != nil {
			t.Errorf("red does not find %s: %v", ref, err)
		}
	}
	// Without the tag it is another template.
	_, err = l.Template(red, "team/app")
	fails(t, err, bothy.CodeTemplateNotFound)
	all, err := l.All()
	must(t, err)
	if got := names(shown(all)); got != "red/team/app:v3 /tools " {
		t.Errorf("all templates are %s", got)
	}
	if _, err := l.Lookup(secret.Digest); err != nil {
		t.Error("the server does not find an image of another project:", err)
	}
}

func TestAProjectsTemplateHidesASharedOne(t *testing.T) {
	l := library(t, Options{}, "tools")
	mine := adopted(t, l, project(t, "red"), "tools", other(t, l, "red's"))
	for id, want := range map[string]string{"red": "red", "blue": ""} {
		got, err := l.LookupFor(t.Context(), id, "tools")
		must(t, err)
		if got.Project != want || (got.Digest == mine.Digest) != (want == "red") {
			t.Errorf("%s gets the template of %q", id, got.Project)
		}
	}
	// Removing its own template leaves the shared one.
	must(t, l.RemoveTemplate(project(t, "red"), "tools"))
	if got, err := l.LookupFor(t.Context(), "red", "tools"); err != nil || got.Project != "" {
		t.Errorf("red finds %v, %v", got, err)
	}
}

func TestTagging(t *testing.T) {
	l := library(t, Options{InUse: func(context.Context, string, string, map[string]bool) (bool, error) { return false, nil }}, "tools")
	red, operator := project(t, "red"), project(t, bothy.DefaultProject)
	one := adopted(t, l, red, "app:v1", other(t, l, "one"))
	two := adopted(t, l, red, "app:v2", other(t, l, "two"))
	is := func(ref, digest string) {
		t.Helper()
		if got, err := l.Template(red, ref); err != nil || got.Digest != digest {
			t.Errorf("%s is %+v, %v", ref, got, err)
		}
	}
	list, err := l.TagTemplate(red, "app:v1", []string{"stable", "latest"})
	must(t, err)
	if got := names(list); got != "red/app:stable red/app " {
		t.Errorf("it was tagged as %s", got)
	}
	is("app", one.Digest)
	_, err = l.TagTemplate(red, "app@"+two.Digest, []string{"stable"})
	must(t, err)
	is("app:stable", two.Digest)
	is("app:latest", one.Digest)
	// An image without a tag is removed unless something uses it.
	_, err = l.TagTemplate(red, "app:v1", []string{"v2", "stable"})
	must(t, err)
	other(t, l, "three") // replaces "two", and is shared
	_, err = l.LookupFor(t.Context(), "red", two.Digest)
	fails(t, err, bothy.CodeTemplateNotFound)

	for _, bad := range []struct {
		ref  string
		tags []string
		code bothy.Code
		says string
	}{
		{"app:v9", []string{"x"}, bothy.CodeTemplateNotFound, "app:v9"},
		{"app:v1", nil, bothy.CodeInvalid, "0 tags"},
		{"app:v1", make([]string, bothy.MaxTemplateTags+1), bothy.CodeInvalid, "21 tags"},
		{"app:v1", []string{"x", "../v"}, bothy.CodeInvalid, "../v"},
		{"app:v1", []string{"a@" + one.Digest}, bothy.CodeInvalid, "is not a valid tag"},
		{"app:v1", []string{""}, bothy.CodeInvalid, `""`},
		{one.Digest, []string{"x"}, bothy.CodeInvalid, "is an image"},
		{"tools", []string{"x"}, bothy.CodeForbidden, "is public"},
	} {
		_, err := l.TagTemplate(red, bad.ref, bad.tags)
		fails(t, err, bad.code, bad.says)
	}
	tools, err := l.Template(red, "tools")
	must(t, err)
	_, err = l.TagTemplate(operator, "tools", []string{"x"})
	must(t, err)
	is("tools:x", tools.Digest)
}

func TestAnImageWithTwoNames(t *testing.T) {
	used := ""
	l := library(t, Options{InUse: func(_ context.Context, _, digest string, _ map[string]bool) (bool, error) { return digest == used, nil }})
	red := project(t, "red")
	from := other(t, l, "one")
	used = adopted(t, l, red, "app", from).Digest
	adopted(t, l, red, "copy", from)
	must(t, l.RemoveTemplate(red, "app"))
	fails(t, l.RemoveTemplate(red, "copy"), bothy.CodeTemplateInUse)
	if _, err := l.LookupFor(t.Context(), "red", used); err != nil {
		t.Error("an image in use was removed:", err)
	}
}

// A template's snapshot of memory is removed with it, and does not keep the image in use.
func TestATemplateWithMemoryIsRemoved(t *testing.T) {
	forgotten := ""
	l := library(t, Options{
		InUse: func(_ context.Context, _, _ string, without map[string]bool) (bool, error) {
			return !without["snp1"] && forgotten == "", nil
		},
		Forget: func(_ context.Context, _, id string) { forgotten = id },
	})
	red := project(t, "red")
	adopted(t, l, red, "app:starting", other(t, l, "one"))
	made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "app", Memory: &bothy.TemplateMemory{SnapshotID: "snp1"}}}
	must(t, l.Adopt(red, made, other(t, l, "two").RootFS))
	must(t, l.Untag(red, "app", "starting"))
	must(t, l.Untag(red, "app", "none"))
	must(t, l.RemoveTemplate(red, "app"))
	if forgotten != "snp1" {
		t.Errorf("the snapshots of %q were removed", forgotten)
	}
	if entries, _ := os.ReadDir(l.of("red").home("app")); len(entries) > 0 {
		t.Errorf("%v are left", entries)
	}
}

// Another server that shares the folder does not know this one's snapshots.
func TestAnImageOfASnapshotStays(t *testing.T) {
	free := func(context.Context, string, string, map[string]bool) (bool, error) { return false, nil }
	l := library(t, Options{InUse: free})
	for _, c := range []context.Context{project(t, "red"), project(t, bothy.DefaultProject)} {
		base := adopted(t, l, c, "base:v1", other(t, l, "one"))
		made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "app", Memory: &bothy.TemplateMemory{SnapshotID: "snp1", BaseDigest: base.Digest}}}
		must(t, l.Adopt(c, made, other(t, l, "two").RootFS))
		other(t, l, "three")
		fails(t, l.RemoveTemplate(c, "base"), bothy.CodeTemplateInUse)
		must(t, l.Untag(c, "base", "v1"))
		must(t, l.Collect(c))
		if _, err := l.LookupFor(t.Context(), bothy.CallerFrom(c).ProjectID, base.Digest); err != nil {
			t.Error("an image that a snapshot needs was removed:", err)
		}
		must(t, l.RemoveTemplate(c, "app"))
		must(t, l.Collect(c))
		_, err := l.LookupFor(t.Context(), bothy.CallerFrom(c).ProjectID, base.Digest)
		fails(t, err, bothy.CodeTemplateNotFound)
	}
}

func TestMovingATagKeepsAnOldImageInUse(t *testing.T) {
	used := map[string]bool{}
	l := library(t, Options{InUse: func(_ context.Context, _, digest string, _ map[string]bool) (bool, error) { return used[digest], nil }}, "tools")
	red := project(t, "red")
	first := adopted(t, l, red, "app:v1", other(t, l, "one"))
	adopted(t, l, red, "app:stable", other(t, l, "one"))
	used[first.Digest] = true
	second := adopted(t, l, red, "app:v1", other(t, l, "two"))
	if got, err := l.Template(red, "app:v1"); err != nil || got.Digest != second.Digest {
		t.Fatalf("app:v1 is %v, %v", got, err)
	}
	if _, err := l.LookupFor(t.Context(), "red", first.Digest); err != nil {
		t.Error("the old image was removed:", err)
	}
	// A tag can be removed if its image has another; the last tag cannot while the image is in use.
	adopted(t, l, red, "app:v0", other(t, l, "one"))
	must(t, l.RemoveTemplate(red, "app:v0"))
	fails(t, l.RemoveTemplate(red, "app:stable"), bothy.CodeTemplateInUse, "app:stable")
	fails(t, l.RemoveTemplate(red, "app"), bothy.CodeTemplateInUse)
	fails(t, l.RemoveTemplate(red, "app:none"), bothy.CodeTemplateNotFound)
	must(t, l.Collect(t.Context()))
	delete(used, first.Digest)
	must(t, l.RemoveTemplate(red, "app:stable"))
	other(t, l, "three") // replaces "one", and is shared
	_, err := l.LookupFor(t.Context(), "red", first.Digest)
	fails(t, err, bothy.CodeTemplateNotFound)
	must(t, l.RemoveTemplate(red, "app"))
	if list, err := l.Templates(red); err != nil || len(list) != 2 {
		t.Errorf("the templates are %s, %v", names(list), err)
	}
}

func TestAnUntaggedImageIsCollectedAfterItsSandboxesEnd(t *testing.T) {
	inUse := true
	l := library(t, Options{InUse: func(context.Context, string, string, map[string]bool) (bool, error) { return inUse, nil }})
	red := project(t, "red")
	first := adopted(t, l, red, "app", other(t, l, "one"))
	adopted(t, l, red, "app", other(t, l, "two"))
	must(t, l.Collect(t.Context()))
	if _, err := l.Lookup(first.Digest); err != nil {
		t.Fatal(err)
	}
	inUse = false
	must(t, l.RemoveTemplate(as(t, bothy.ScopeTemplatesWrite), "other"))
	must(t, l.Collect(t.Context()))
	_, err := l.Lookup(first.Digest)
	fails(t, err, bothy.CodeTemplateNotFound)
}

func TestATemplateBeyondTheQuotaIsRefused(t *testing.T) {
	var quota int64
	l := library(t, Options{Quota: func(_ context.Context, id string) (int64, error) {
		if id != "red" {
			t.Errorf("the quota of %q was requested", id)
		}
		return quota, nil
	}})
	red := project(t, "red")
	one := other(t, l, "one")
	quota = one.SizeBytes
	adopted(t, l, red, "app", one)
	made := &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: "more"}}
	fails(t, l.Adopt(red, made, other(t, l, "two").RootFS), bothy.CodeQuota, "bothy template rm")
	if list, err := l.Templates(red); err != nil || names(list) != "red/app /other " {
		t.Errorf("the templates are %s, %v", names(list), err)
	}
	if used, err := l.UsedBy("red"); err != nil || used != one.SizeBytes {
		t.Errorf("the project uses %d bytes, %v", used, err)
	}
}

func TestConcurrentTemplatesDoNotExceedTheQuota(t *testing.T) {
	var quota int64
	l := library(t, Options{Quota: func(context.Context, string) (int64, error) { return quota, nil }})
	one, two := other(t, l, "one"), other(t, l, "two")
	quota = max(one.SizeBytes, two.SizeBytes)
	red := project(t, "red")
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, from := range []*store.Template{one, two} {
		both.Go(func() {
			errs[i] = l.Adopt(red, &store.Template{Template: bothy.Template{Version: bothy.ManifestVersion, Name: fmt.Sprint("app", i)}}, from.RootFS)
		})
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two templates with room for one: %v, %v", errs[0], errs[1])
	}
	fails(t, errors.Join(errs...), bothy.CodeQuota, "bothy template rm")
	if used, err := l.UsedBy("red"); err != nil || used > quota {
		t.Errorf("%d of %d bytes are used, %v", used, quota, err)
	}
}
