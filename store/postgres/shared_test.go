package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
)

// Names that were removed are known as that, versions only grow, and who says what he knows of
// a name changes it only where that is so still.
func TestTemplateNames(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	name := func(tag, digest string, known int64) store.TemplateName {
		return store.TemplateName{Project: "p", Name: "app", Tag: tag, Digest: digest, Version: known, Manifest: []byte(`{"a":1}`)}
	}
	image := store.Tree{Kind: store.TreeTemplates, Name: "d1", Host: "one", Bytes: 7, At: time.Unix(1, 0).UTC(), Record: []byte("{}")}
	if err := one.NameTemplates(ctx, []store.TemplateName{name("v1", "d1", 0), name("v2", "d1", 0)}, []store.Tree{image}, store.Naming{Unchanged: true}); err != nil {
		t.Fatal(err)
	}
	// The second host knew of nothing, so that it changes nothing.
	if err := two.NameTemplates(ctx, []store.TemplateName{name("v1", "d2", 0)}, nil, store.Naming{Unchanged: true}); err != nil {
		t.Fatal(err)
	}
	got, newest, err := two.TemplateNames(ctx, 0)
	if err != nil || len(got) != 2 || newest != 2 || got[0].Digest != "d1" || string(got[0].Manifest) != `{"a":1}` {
		t.Fatalf("%+v %d %v", got, newest, err)
	}
	if err := two.NameTemplates(ctx, []store.TemplateName{name("v1", "d2", got[0].Version)}, nil, store.Naming{Unchanged: true}); err != nil {
		t.Fatal(err)
	}
	if err := one.NameTemplates(ctx, []store.TemplateName{name("v2", "", 0)}, nil, store.Naming{}); err != nil {
		t.Fatal(err)
	}
	got, newer, err := one.TemplateNames(ctx, newest)
	if err != nil || len(got) != 2 || got[0].Digest != "d2" || got[1].Digest != "" || newer <= newest {
		t.Fatalf("%+v %d %v", got, newer, err)
	}
	if v, err := two.TemplateVersion(ctx); err != nil || v != newer {
		t.Errorf("the version is %d, %v", v, err)
	}
	tree, err := two.Tree(ctx, store.TreeTemplates, "d1")
	if err != nil || tree.Host != "one" || tree.Bytes != 7 || !tree.At.Equal(image.At) || tree.StoredAt != nil {
		t.Errorf("%+v %v", tree, err)
	}
	other := image
	other.Host = "two"
	if err := two.PutTree(ctx, other); err != nil {
		t.Fatal(err)
	}
	if all, err := one.Trees(ctx, store.TreeTemplates); err != nil || len(all) != 1 || all[0].Host != "one" {
		t.Errorf("%+v %v", all, err)
	}
	if _, err := one.Tree(ctx, store.TreeEngines, "d1"); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Error(err)
	}
	// What nothing needs goes after a while, unless something has needed it meanwhile.
	at := time.Unix(5, 0).UTC()
	must(t, one.SetTreeStored(ctx, image.Kind, image.Name, &at))
	if gone, err := two.MarkTreeDeleting(ctx, image.Kind, image.Name, time.Now().Add(time.Hour)); err != nil || gone {
		t.Errorf("a tree that is needed was to go: %v %v", gone, err)
	}
	must(t, two.SetTreeNeeded(ctx, image.Kind, image.Name, false))
	if gone, err := two.MarkTreeDeleting(ctx, image.Kind, image.Name, time.Now().Add(-time.Hour)); err != nil || gone {
		t.Errorf("a tree was to go before its time: %v %v", gone, err)
	}
	must(t, one.PutTree(ctx, image))
	if gone, err := two.MarkTreeDeleting(ctx, image.Kind, image.Name, time.Now().Add(time.Hour)); err != nil || gone {
		t.Errorf("a tree that was published again was to go: %v %v", gone, err)
	}
	must(t, two.SetTreeNeeded(ctx, image.Kind, image.Name, false))
	if gone, err := two.MarkTreeDeleting(ctx, image.Kind, image.Name, time.Now().Add(time.Hour)); err != nil || !gone {
		t.Errorf("a tree that nothing needs was not to go: %v %v", gone, err)
	}
	if tree, err := one.Tree(ctx, image.Kind, image.Name); err != nil || !tree.Deleting() || tree.UnneededAt == nil {
		t.Errorf("%+v %v", tree, err)
	}
	if err := one.ForgetTemplateNames(ctx); err != nil {
		t.Fatal(err)
	}
	if got, newest, err := two.TemplateNames(ctx, 0); err != nil || len(got) != 0 || newest != 0 {
		t.Errorf("%+v %d %v", got, newest, err)
	}
}

// What a host has published that is dead, or that nothing has needed, is replaced by what another
// has, unless it is in the object storage.
func TestTreesOfLostHosts(t *testing.T) {
	url, ctx := database(t), t.Context()
	dead, two, three := crashed(t, url, "dead"), member(t, url, "two"), member(t, url, "three")
	defer dead.Close()
	defer two.Close()
	defer three.Close()
	tree := func(name, host string) store.Tree {
		return store.Tree{Kind: store.TreeEngines, Name: name, Host: host, Bytes: int64(len(host)), At: time.Unix(1, 0).UTC(), Record: []byte(`"` + host + `"`)}
	}
	check := func(name, want string) {
		t.Helper()
		got, err := two.Tree(ctx, store.TreeEngines, name)
		if err != nil || got.Host != want || string(got.Record) != `"`+want+`"` || got.Bytes != int64(len(want)) || got.UnneededAt != nil {
			t.Errorf("%s: %+v %v, want that of %s", name, got, err, want)
		}
	}
	for _, name := range []string{"lost", "stored"} {
		must(t, dead.PutTree(ctx, tree(name, "dead")))
		must(t, two.PutTree(ctx, tree(name, "two")))
		check(name, "dead") // nobody has given it up
	}
	at := time.Unix(5, 0).UTC()
	must(t, dead.SetTreeStored(ctx, store.TreeEngines, "stored", &at))
	if done, err := two.GiveUpHosts(ctx, 0, nil); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	must(t, two.PutTree(ctx, tree("lost", "two")))
	must(t, two.PutTree(ctx, tree("stored", "two")))
	check("lost", "two")
	check("stored", "dead")
	must(t, three.PutTree(ctx, tree("lost", "three")))
	check("lost", "two")
	must(t, three.SetTreeNeeded(ctx, store.TreeEngines, "lost", false))
	must(t, three.PutTree(ctx, tree("lost", "three")))
	check("lost", "three")
}

func TestHostsRaceForTheQuotaOfTemplates(t *testing.T) {
	url, ctx := database(t), t.Context()
	one, two := member(t, url, "one"), member(t, url, "two")
	defer one.Close()
	defer two.Close()
	publish := func(at *postgres.Store, name, tag, digest string, quota int64) error {
		return at.NameTemplates(ctx, []store.TemplateName{{Project: "p", Name: name, Tag: tag, Digest: "sha256:" + digest, Manifest: []byte("{}")}},
			[]store.Tree{{Kind: store.TreeTemplates, Name: digest, Bytes: 10, At: time.Unix(1, 0), Record: []byte("{}")}}, store.Naming{Quota: quota})
	}
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = publish([]*postgres.Store{one, two}[i%2], "app", fmt.Sprint("v", i), fmt.Sprint("d", i), 39)
		})
	}
	all.Wait()
	done := map[int]bool{}
	for i, err := range errs {
		var over *store.OverQuota
		if err == nil {
			done[i] = true
		} else if !errors.As(err, &over) || over.Used != 30 {
			t.Errorf("beyond the quota: %v", err)
		}
	}
	names, _, err := one.TemplateNames(ctx, 0)
	if err != nil || len(names) != 3 || len(done) != 3 {
		t.Errorf("%d were published, and %d are there, %v; want 3", len(done), len(names), err)
	}
	for i := range done {
		must(t, publish(one, "app", "again", fmt.Sprint("d", i), 39)) // one image counts once for a name
	}
}
