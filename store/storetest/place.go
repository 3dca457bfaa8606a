package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
)

func testPlaces(t *testing.T, f *fixture) {
	all := func() []store.Place {
		t.Helper()
		got, err := f.Places(f.ctx)
		f.must(err)
		return got
	}
	equal(t, len(all()), 0)
	first := store.Place{ID: "first", Location: "s3://one", CreatedAt: epoch}
	second := store.Place{ID: "second", Location: "s3://two", CreatedAt: epoch.Add(time.Second)}
	f.must(f.AddPlace(f.ctx, first))
	f.must(f.AddPlace(f.ctx, first))
	f.must(f.AddPlace(f.ctx, second))
	f.reopen()
	equal(t, all(), []store.Place{first, second})

	// Of many who use one at the same time, all get the same.
	var users sync.WaitGroup
	got := make([]store.Place, 8)
	errs := make([]error, len(got))
	for i := range got {
		users.Go(func() {
			p := []store.Place{first, second}[i%2]
			got[i], errs[i] = f.UsePlace(f.ctx, p)
		})
	}
	users.Wait()
	for i := range got {
		f.must(errs[i])
		equal(t, got[i], got[0])
	}
	used := got[0]
	if !used.Used || used.ID != "first" && used.ID != "second" {
		t.Fatalf("the place that is used: %+v", used)
	}
	f.reopen()
	equal(t, all(), []store.Place{used}) // the other is forgotten

	again, err := f.UsePlace(f.ctx, store.Place{ID: used.ID, Location: "s3://elsewhere", CreatedAt: epoch.Add(time.Hour)})
	f.must(err)
	used.Location = "s3://elsewhere"
	equal(t, again, used)
	f.must(f.AddPlace(f.ctx, store.Place{ID: "third", Location: "s3://three", CreatedAt: epoch}))
	other, err := f.UsePlace(f.ctx, store.Place{ID: "third", Location: "s3://three", CreatedAt: epoch})
	f.must(err)
	equal(t, other, used)
	equal(t, len(all()), 2)

	f.must(f.ForgetPlaces(f.ctx))
	equal(t, fmt.Sprint(all()), "[]")
	other, err = f.UsePlace(f.ctx, store.Place{ID: "third", Location: "s3://three", CreatedAt: epoch})
	f.must(err)
	equal(t, other.ID, "third")
}
