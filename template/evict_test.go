package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

// Beyond the bound the fetched image goes that was used least lately, but none that is used, that
// may be about to be, or that is nowhere else. What is needed again is fetched again.
func TestFetchedImagesAreBounded(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	now := time.Now()
	inUse, only := map[string]bool{}, map[string]bool{}
	two.common.Now = func() time.Time { return now }
	two.common.UsedHere = func(context.Context) (map[string]bool, error) { return inUse, nil }
	two.common.Elsewhere = func(_ context.Context, digest string) (bool, error) { return !only[digest], nil }
	operator := project(t, bothy.DefaultProject)
	var made []*store.Template
	for i := range 4 {
		made = append(made, adopted(t, one, operator, fmt.Sprint("app", i), other(t, one, fmt.Sprint("content ", i))))
	}
	use := func(i int) {
		t.Helper()
		now = now.Add(time.Hour)
		got, err := two.LookupFor(t.Context(), "", fmt.Sprint("app", i))
		if err != nil || sumOf(t, got.RootFS) != made[i].Digest {
			t.Fatalf("%+v %v", got, err)
		}
	}
	evict := func(images int, want string) {
		t.Helper()
		most := int64(0)
		for _, m := range made {
			most = max(most, int64(images)*m.SizeBytes)
		}
		must(t, two.Evict(t.Context(), most))
		here := ""
		for i, m := range made {
			if _, err := os.Stat(filepath.Join(two.home(m.Name), digestOf(m.Digest), imageName)); err == nil {
				here += fmt.Sprint(i)
			}
		}
		if here != want {
			t.Errorf("here are the images %q, want %q", here, want)
		}
	}
	for i := range 4 {
		use(i)
	}
	evict(4, "0123")
	use(0)
	evict(3, "023") // the oldest use is that of 1
	use(1)          // which is fetched again
	if h.fetches != 5 {
		t.Errorf("%d images were fetched", h.fetches)
	}
	inUse[made[2].Digest], only[made[3].Digest] = true, true
	evict(0, "123") // 1 was used just now
	now = now.Add(time.Hour)
	evict(0, "23")
	clear(inUse)
	clear(only)
	evict(0, "")
	if left, _ := filepath.Glob(filepath.Join(two.dir, ".build", "*")); len(left) > 0 {
		t.Errorf("there is left: %q", left)
	}
	if list, err := two.Templates(operator); err != nil || names(list) != "/app0 /app1 /app2 /app3 /other " {
		t.Errorf("there is %s, %v", names(list), err)
	}
	use(2)
}

// A disk without room for an image that is to be fetched loses others.
func TestAFetchMakesRoom(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	now := time.Now()
	two.common.Now = func() time.Time { return now }
	two.common.UsedHere = func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil }
	asked := 0
	two.common.Elsewhere = func(context.Context, string) (bool, error) { asked++; return true, nil }
	other(t, one, "content")
	old, err := two.LookupFor(t.Context(), "", "other")
	must(t, err)
	now = now.Add(time.Hour)
	later := other(t, one, "later")
	two.opts.MinFreeDisk = 1 << 60
	_, err = two.LookupFor(t.Context(), "", "other")
	fails(t, err, bothy.CodeDiskFull)
	if isHere(old) || asked != 1 {
		t.Errorf("for want of room nothing was removed; it was asked %d times", asked)
	}
	two.opts.MinFreeDisk = 0
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || got.Digest != later.Digest {
		t.Errorf("%+v %v", got, err)
	}
}

// An image that a host has made is not fetched, and none goes while it is not known what is elsewhere.
func TestOnlyFetchedImagesAreEvicted(t *testing.T) {
	h := newHostsOf(t, newCommonStore())
	one, two := h.join("one"), h.join("two")
	boom := errors.New("the database is unavailable")
	nothing := func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil }
	for _, l := range []*Library{one, two} {
		l.common.Now = func() time.Time { return time.Now().Add(time.Hour) }
		l.common.UsedHere = nothing
		l.common.Elsewhere = func(context.Context, string) (bool, error) { return true, nil }
	}
	made := other(t, one, "content")
	must(t, one.Evict(t.Context(), 0))
	if !isHere(made) {
		t.Error("an image that was made here has gone")
	}
	got, err := two.LookupFor(t.Context(), "", "other")
	must(t, err)
	two.common.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	two.common.Elsewhere = func(context.Context, string) (bool, error) { return false, boom }
	if err := two.Evict(t.Context(), 0); !errors.Is(err, boom) || !isHere(got) {
		t.Errorf("while nothing is known: %v", err)
	}
	two.common.Elsewhere = func(context.Context, string) (bool, error) {
		two.common.touch(filepath.Dir(got.RootFS)) // a sandbox is about to start
		return true, nil
	}
	must(t, two.Evict(t.Context(), 0))
	if !isHere(got) {
		t.Error("an image has gone that is used by now")
	}
	two.common.Elsewhere = func(context.Context, string) (bool, error) { return true, nil }
	two.common.Now = func() time.Time { return time.Now().Add(3 * time.Hour) }
	remove := failpoint.Set("template.evicted", func() error { return boom })
	err = two.Evict(t.Context(), 0)
	remove()
	if !errors.Is(err, boom) || isHere(got) {
		t.Errorf("a server that ends while an image goes: %v", err)
	}
	must(t, two.Sync(t.Context()))
	two = h.again("two")
	must(t, two.Sync(t.Context()))
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || sumOf(t, got.RootFS) != made.Digest {
		t.Errorf("%+v %v", got, err)
	}
	must(t, errors.Join(two.Sync(t.Context()), one.Sync(t.Context())))
	if got, err := one.LookupFor(t.Context(), "", "other"); err != nil || got.Digest != made.Digest {
		t.Errorf("the name went with an image: %+v %v", got, err)
	}
}
