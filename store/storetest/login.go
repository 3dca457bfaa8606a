package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

var wide = store.LoginBounds{PerToken: 100, All: 100}

func login(hash string, n int) *store.Login {
	at := epoch.Add(time.Duration(n) * time.Second)
	return &store.Login{Hash: hash, ProjectID: "p", TokenID: "t", CreatedAt: at, ExpiresAt: at.Add(time.Hour)}
}

// wantLogins checks which of all the logins that a test makes are there.
func (f *fixture) wantLogins(all []string, want ...string) {
	f.Helper()
	got, err := f.HaveLogins(f.ctx, all)
	f.must(err)
	slices.Sort(got)
	slices.Sort(want)
	equal(f.T, got, want)
}

func testLogins(t *testing.T, f *fixture) {
	want := login("a", 0)
	f.must(f.AddLogin(f.ctx, want, wide))
	f.must(f.AddLogin(f.ctx, want, wide)) // once more, as when the answer was lost
	got, err := f.Login(f.ctx, "a")
	f.must(err)
	equal(t, got, want)
	_, err = f.Login(f.ctx, "none")
	f.wantCode(err, bothy.CodeNotFound)
	f.wantLogins([]string{"a", "none"}, "a")
	f.wantLogins(nil)

	code := login("c", 0)
	code.Code = true
	f.must(f.AddLogin(f.ctx, code, wide))
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := f.TakeLogin(f.ctx, "c")
			switch {
			case err == nil:
				taken.Add(1)
				equal(t, got, code)
			case bothy.ErrorCode(err) != bothy.CodeNotFound:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d have taken one code", taken.Load())
	}
	f.must(f.DeleteLogin(f.ctx, "a"))
	f.must(f.DeleteLogin(f.ctx, "a"))
	f.wantLogins([]string{"a", "c"})
}

func testLoginsAreBounded(t *testing.T, f *fixture) {
	var all []string
	add := func(l *store.Login, b store.LoginBounds) {
		t.Helper()
		all = append(all, l.Hash)
		f.must(f.AddLogin(f.ctx, l, b))
	}
	other := login("other", 0)
	other.TokenID = "u"
	add(other, wide)
	code := login("code", 0)
	code.Code = true
	add(code, wide)
	for n := range 4 {
		add(login(fmt.Sprint("own", n), n+1), store.LoginBounds{PerToken: 2, All: 100})
	}
	f.wantLogins(all, "own2", "own3", "other", "code")
	add(login("own4", 5), store.LoginBounds{PerToken: 100, All: 3})
	f.wantLogins(all, "own2", "own3", "own4", "code")
	// The project with the most loses its oldest, however many it adds, and no other.
	for n := range 4 {
		l := login(fmt.Sprint("greedy", n), n+10)
		l.ProjectID, l.TokenID = "greedy", fmt.Sprint("t", n)
		add(l, store.LoginBounds{PerToken: 100, All: 4})
	}
	f.wantLogins(all, "own3", "own4", "greedy2", "greedy3", "code")
	for _, hash := range []string{"greedy2", "greedy3"} {
		f.must(f.DeleteLogin(f.ctx, hash))
	}
	// What has expired goes with the next of its kind.
	add(login("later", 3600+3), wide)
	f.wantLogins(all, "own3", "own4", "later", "code")
}
