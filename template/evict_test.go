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

// Above the limit, the least recently used of the fetched images is evicted, but none that is in use,
// about to be used, or on no other host. An evicted image is fetched again when needed.
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
			t.Errorf("the images on this host are %q, want %q", here, want)
		}
	}
	for i := range 4 {
		use(i)
	}
	evict(4, "0123")
	use(0)
	evict(3, "023") // 1 is the least recently used
	use(1)          // fetches it again
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
		t.Errorf("files are left: %q", left)
	}
	if list, err := two.Templates(operator); err != nil || names(list) != "/app0 /app1 /app2 /app3 /other " {
		t.Errorf("the templates are %s, %v", names(list), err)
	}
	use(2)
}

// If an image to be fetched does not fit on the disk, others are evicted.
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
		t.Errorf("nothing was removed to make room, in %d calls", asked)
	}
	two.opts.MinFreeDisk = 0
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || got.Digest != later.Digest {
		t.Errorf("%+v %v", got, err)
	}
}

// An image that this host built is never evicted, and no image is while it is unknown whether others
// have it.
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
		t.Error("an image that was built here was evicted")
	}
	got, err := two.LookupFor(t.Context(), "", "other")
	must(t, err)
	two.common.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	two.common.Elsewhere = func(context.Context, string) (bool, error) { return false, boom }
	if err := two.Evict(t.Context(), 0); !errors.Is(err, boom) || !isHere(got) {
		t.Errorf("while the database is unavailable: %v", err)
	}
	two.common.Elsewhere = func(context.Context, string) (bool, error) {
		two.common.touch(filepath.Dir(got.RootFS)) // a sandbox is about to start
		return true, nil
	}
	must(t, two.Evict(t.Context(), 0))
	if !isHere(got) {
		t.Error("an image that is in use again was evicted")
	}
	two.common.Elsewhere = func(context.Context, string) (bool, error) { return true, nil }
	two.common.Now = func() time.Time { return time.Now().Add(3 * time.Hour) }
	remove := failpoint.Set("template.evicted", func() error { return boom })
	err = two.Evict(t.Context(), 0)
	remove()
	if !errors.Is(err, boom) || isHere(got) {
		t.Errorf("a crash during an eviction: %v", err)
	}
	must(t, two.Sync(t.Context()))
	two = h.again("two")
	must(t, two.Sync(t.Context()))
	if got, err := two.LookupFor(t.Context(), "", "other"); err != nil || sumOf(t, got.RootFS) != made.Digest {
		t.Errorf("%+v %v", got, err)
	}
	must(t, errors.Join(two.Sync(t.Context()), one.Sync(t.Context())))
	if got, err := one.LookupFor(t.Context(), "", "other"); err != nil || got.Digest != made.Digest {
		t.Errorf("the name was lost with its image: %+v %v", got, err)
	}
}
