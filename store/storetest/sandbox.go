package storetest

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// fill sets every field of v to a non-zero value, so that a field which a store does not keep
// is noticed.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = epoch.Add(time.Hour)
		return
	case *netip.Prefix:
		*x = netip.MustParsePrefix("192.0.2.0/24")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
		fill(t, v.Index(1))
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, k)
		fill(t, e)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.String:
		v.SetString("ünïcode \"' \\ \n" + v.Type().Name())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(200)
	case reflect.Float64:
		v.SetFloat(0.1)
	default:
		t.Fatalf("storetest cannot fill a %s", v.Type())
	}
}

func full[T any](t *testing.T) *T {
	t.Helper()
	v := new(T)
	fill(t, reflect.ValueOf(v).Elem())
	return v
}

// equal compares two values; empty and nil maps and slices are equal.
func equal(t *testing.T, got, want any) {
	t.Helper()
	opts := []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Fatalf("-want +got\n%s", d)
	}
}

func sandbox(id string, created time.Time) *store.Sandbox {
	return &store.Sandbox{
		Sandbox: bothy.Sandbox{
			ID: id, State: bothy.StateRunning, Template: "t", Engine: "fake", CPU: 1, MemoryMB: 512, DiskMB: 2048,
			CreatedAt: created, ProjectID: "p", OnTimeout: bothy.TimeoutTerminate,
		},
	}
}

func testSandboxWhole(t *testing.T, f *fixture) {
	for _, state := range []bothy.State{bothy.StateRunning, bothy.StatePaused, bothy.StateFailed} {
		want := full[store.Sandbox](t)
		want.ID, want.State, want.Version = "sbx-"+string(state), state, 0
		want.Key += string(state)
		f.must(f.PutSandbox(f.ctx, want))
		got, err := f.Sandbox(f.ctx, want.ID)
		f.must(err)
		equal(t, got, want)
	}
	empty := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "empty"}}
	f.must(f.PutSandbox(f.ctx, empty))
	got, err := f.Sandbox(f.ctx, "empty")
	f.must(err)
	empty.CreatedAt = empty.CreatedAt.UTC()
	equal(t, got, empty)
}

func testSandboxesToResume(t *testing.T, f *fixture) {
	due := func(id string, state bothy.State, after time.Duration) {
		s := sandbox(id, epoch)
		at := epoch.Add(after)
		s.State, s.HostLoss = state, &bothy.HostLoss{SnapshotID: "snp", NextResumeAt: &at}
		f.must(f.PutSandbox(f.ctx, s))
	}
	list := func(after time.Duration, limit int) string {
		all, err := f.SandboxesToResume(f.ctx, epoch.Add(after), limit)
		f.must(err)
		var ids []string
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return strings.Join(ids, " ")
	}
	due("later", bothy.StatePaused, time.Hour)
	due("second", bothy.StatePaused, 2*time.Second)
	due("first", bothy.StatePaused, time.Second)
	due("awake", bothy.StateRunning, time.Second)
	f.must(f.PutSandbox(f.ctx, sandbox("never", epoch)))
	for _, c := range []struct {
		after time.Duration
		limit int
		want  string
	}{{0, 10, ""}, {time.Second, 10, "first"}, {time.Minute, 10, "first second"}, {time.Minute, 1, "first"}, {2 * time.Hour, 10, "first second later"}} {
		if got := list(c.after, c.limit); got != c.want {
			t.Errorf("after %v, at most %d: %q and not %q", c.after, c.limit, got, c.want)
		}
	}
	s, err := f.Sandbox(f.ctx, "first")
	f.must(err)
	s.StopResuming()
	f.must(f.PutSandbox(f.ctx, s))
	if got := list(time.Minute, 10); got != "second" {
		t.Errorf("with one that is to be resumed no more: %q", got)
	}
}

func testSandboxReplaced(t *testing.T, f *fixture) {
	s := sandbox("a", epoch)
	s.Name, s.Metadata = "before", map[string]string{"k": "before"}
	f.must(f.PutSandbox(f.ctx, s))
	s.Name, s.Metadata, s.State = "after", map[string]string{"k": "after"}, bothy.StatePaused
	f.must(f.PutSandbox(f.ctx, s))
	got, err := f.Sandbox(f.ctx, "a")
	f.must(err)
	equal(t, got, s)
	wantIDs(t, f, bothy.SandboxFilter{Name: "before"})
	wantIDs(t, f, bothy.SandboxFilter{Metadata: map[string]string{"k": "before"}})
	wantIDs(t, f, bothy.SandboxFilter{Name: "after", Metadata: map[string]string{"k": "after"}}, "a")
}

func testSandboxCopy(t *testing.T, f *fixture) {
	s := sandbox("a", epoch)
	s.Metadata, s.EngineState = map[string]string{"k": "v"}, []byte("state")
	f.must(f.PutSandbox(f.ctx, s))
	s.Metadata["k"], s.EngineState[0], s.Name = "changed", 'X', "changed"
	got, err := f.Sandbox(f.ctx, "a")
	f.must(err)
	if got.Metadata["k"] != "v" || string(got.EngineState) != "state" || got.Name != "" {
		t.Fatalf("the store shares memory with its caller: %+v", got)
	}
	got.Metadata["k"] = "changed"
	again, err := f.Sandbox(f.ctx, "a")
	f.must(err)
	if again.Metadata["k"] != "v" {
		t.Fatal("two readers share memory")
	}
}

func testSandboxNotFound(t *testing.T, f *fixture) {
	_, err := f.Sandbox(f.ctx, "sbx-nowhere")
	f.wantCode(err, bothy.CodeSandboxNotFound)
	if e := bothy.AsError(err); !strings.Contains(e.Detail, "sbx-nowhere") || e.Hint == "" {
		t.Fatalf("unhelpful error: %+v", e)
	}
}

func listIDs(t *testing.T, f *fixture, filter bothy.SandboxFilter) []string {
	t.Helper()
	p, err := f.Sandboxes(f.ctx, "p", filter)
	f.must(err)
	if p.Items == nil {
		t.Fatal("a page without items has null in place of an empty list")
	}
	return ids(p.Items)
}

func ids(items []*store.Sandbox) []string {
	out := []string{}
	for _, s := range items {
		out = append(out, s.ID)
	}
	return out
}

func wantIDs(t *testing.T, f *fixture, filter bothy.SandboxFilter, want ...string) {
	t.Helper()
	if got := listIDs(t, f, filter); !slices.Equal(got, want) {
		t.Fatalf("filter %+v selects %v, want %v", filter, got, want)
	}
}

func testSandboxFilters(t *testing.T, f *fixture) {
	hard := "key.with \"quotes\" and 'more' $[0]"
	for i, s := range []struct {
		state bothy.State
		name  string
		meta  map[string]string
	}{
		{bothy.StateRunning, "one", map[string]string{"team": "red", hard: "yes"}},
		{bothy.StatePaused, "two", map[string]string{"team": "red"}},
		{bothy.StateStopped, "one", map[string]string{"team": "blue", "n": "1"}},
		{bothy.StateRunning, "", nil},
	} {
		b := sandbox(fmt.Sprint("s", i), epoch.Add(time.Duration(i)))
		b.State, b.Name, b.Metadata = s.state, s.name, s.meta
		f.must(f.PutSandbox(f.ctx, b))
	}
	type m = map[string]string
	wantIDs(t, f, bothy.SandboxFilter{}, "s3", "s2", "s1", "s0")
	wantIDs(t, f, bothy.SandboxFilter{States: []bothy.State{bothy.StateRunning}}, "s3", "s0")
	wantIDs(t, f, bothy.SandboxFilter{States: []bothy.State{bothy.StatePaused, bothy.StateStopped}}, "s2", "s1")
	wantIDs(t, f, bothy.SandboxFilter{Name: "one"}, "s2", "s0")
	wantIDs(t, f, bothy.SandboxFilter{Name: "on%"})
	wantIDs(t, f, bothy.SandboxFilter{Metadata: m{"team": "red"}}, "s1", "s0")
	wantIDs(t, f, bothy.SandboxFilter{Metadata: m{"team": "red", hard: "yes"}}, "s0")
	wantIDs(t, f, bothy.SandboxFilter{Metadata: m{"n": "1"}}, "s2")
	wantIDs(t, f, bothy.SandboxFilter{Metadata: m{"absent": ""}})
	wantIDs(t, f, bothy.SandboxFilter{Name: "one", States: []bothy.State{bothy.StateStopped}, Metadata: m{"team": "blue"}}, "s2")
	wantIDs(t, f, bothy.SandboxFilter{Name: "' OR 1=1 --"})
}

func testSandboxProjects(t *testing.T, f *fixture) {
	mine, theirs, pooled := sandbox("mine", epoch), sandbox("theirs", epoch), sandbox("pooled", epoch)
	theirs.ProjectID = "q"
	pooled.Pooled = true
	for _, s := range []*store.Sandbox{mine, theirs, pooled} {
		f.must(f.PutSandbox(f.ctx, s))
	}
	wantIDs(t, f, bothy.SandboxFilter{}, "mine")
}

func testSandboxPages(t *testing.T, f *fixture) {
	var want []string
	for i := range 25 {
		// Five at a time share their instant, so that only the id tells them apart.
		s := sandbox(fmt.Sprintf("s%02d", i), epoch.Add(time.Duration(i/5)*time.Second))
		f.must(f.PutSandbox(f.ctx, s))
		want = append([]string{s.ID}, want...)
	}
	var got []string
	cursor := ""
	for n := 0; ; n++ {
		p, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{Limit: 4, Cursor: cursor})
		f.must(err)
		if len(p.Items) > 4 {
			t.Fatalf("page of %d, limit 4", len(p.Items))
		}
		got = append(got, ids(p.Items)...)
		if cursor = p.NextCursor; cursor == "" {
			break
		}
		// A newer one must not shift the pages; the removal of the last row
		// that was seen must not confuse them either.
		f.must(f.PutSandbox(f.ctx, sandbox(fmt.Sprint("new", n), epoch.Add(time.Hour))))
		last := p.Items[len(p.Items)-1]
		last.State, last.Ended = bothy.StateStopped, &bothy.Ended{At: epoch}
		f.must(f.PutSandbox(f.ctx, last))
		_, err = f.DeleteSandboxesEndedBefore(f.ctx, epoch.Add(time.Nanosecond))
		f.must(err)
	}
	equal(t, got, want)
	wantIDs(t, f, bothy.SandboxFilter{Limit: 1}, "new5")
	p, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{Limit: 19 + 6})
	f.must(err)
	if len(p.Items) != 25 || p.NextCursor != "" {
		t.Fatalf("a last page that is exactly full has %d items and cursor %q", len(p.Items), p.NextCursor)
	}
}

func testBadCursor(t *testing.T, f *fixture) {
	for _, c := range []string{"x", "!!!", "e30", "' OR 1=1"} {
		_, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{Cursor: c})
		f.wantCode(err, bothy.CodeInvalid)
		_, err = f.Snapshots(f.ctx, "p", bothy.SnapshotFilter{Cursor: c})
		f.wantCode(err, bothy.CodeInvalid)
	}
}

func testSandboxesInState(t *testing.T, f *fixture) {
	for i, state := range []bothy.State{bothy.StateStarting, bothy.StateRunning, bothy.StateStopped} {
		s := sandbox(fmt.Sprint("s", i), epoch.Add(time.Duration(i)))
		s.State, s.ProjectID, s.Pooled = state, fmt.Sprint("p", i), i == 1
		f.must(f.PutSandbox(f.ctx, s))
	}
	got, err := f.SandboxesInState(f.ctx, bothy.StateStarting, bothy.StateRunning)
	f.must(err)
	equal(t, ids(got), []string{"s1", "s0"})
	got, err = f.SandboxesInState(f.ctx)
	f.must(err)
	equal(t, ids(got), []string{})
}

func testForgetSandboxes(t *testing.T, f *fixture) {
	for id, set := range map[string]func(*store.Sandbox){
		"running": func(s *store.Sandbox) {},
		"paused":  func(s *store.Sandbox) { s.State = bothy.StatePaused },
		"old": func(s *store.Sandbox) {
			s.State, s.Ended = bothy.StateStopped, &bothy.Ended{Reason: bothy.EndTerminated, At: epoch.Add(time.Minute)}
		},
		"failed": func(s *store.Sandbox) { s.State = bothy.StateFailed },
		"recent": func(s *store.Sandbox) {
			s.State, s.Ended = bothy.StateStopped, &bothy.Ended{Reason: bothy.EndTerminated, At: epoch.Add(time.Hour)}
		},
	} {
		s := sandbox(id, epoch)
		set(s)
		f.must(f.PutSandbox(f.ctx, s))
	}
	n, err := f.DeleteSandboxesEndedBefore(f.ctx, epoch.Add(time.Hour))
	f.must(err)
	if n != 2 {
		t.Fatalf("forgot %d sandboxes, want 2", n)
	}
	wantIDs(t, f, bothy.SandboxFilter{}, "running", "recent", "paused")
}

// A key finds the sandbox that was created with it, and there is only one, until it has ended or a day has
// passed.
func testSandboxByKey(t *testing.T, f *fixture) {
	keyed := func(id, project string) *store.Sandbox {
		sb := sandbox(id, f.clock.now())
		sb.State, sb.ProjectID, sb.Key, sb.KeyPrint = bothy.StateRunning, project, "key", "print"
		return sb
	}
	find := func(when, project, want string) {
		t.Helper()
		sb, err := f.SandboxByKey(f.ctx, project, "key", f.clock.now().Add(-store.KeyLife))
		if want == "" {
			f.wantCode(err, bothy.CodeSandboxNotFound)
		} else if err != nil || sb.ID != want || sb.KeyPrint != "print" || sb.Version == 0 {
			t.Fatalf("%s it finds %+v %v, want %s", when, sb, err, want)
		}
	}
	find("at first", "p", "")
	one := keyed("one", "p")
	f.must(f.PutSandbox(f.ctx, one))
	f.must(f.PutSandbox(f.ctx, keyed("other", "q")))
	f.must(f.PutSandbox(f.ctx, sandbox("none", epoch)))
	find("once it is stored", "p", "one")
	find("in another project", "q", "other")
	two := keyed("two", "p")
	err := f.PutSandbox(f.ctx, two)
	f.wantCode(err, bothy.CodeConflict)
	if e := bothy.AsError(err); e.RetryAfter == 0 || two.Version != 0 {
		t.Errorf("a second one: %v, with version %d", err, two.Version)
	}
	_, err = f.Sandbox(f.ctx, "two")
	f.wantCode(err, bothy.CodeSandboxNotFound)
	one.State = bothy.StatePaused
	f.must(f.PutSandbox(f.ctx, one))
	f.reopen()
	find("while it is paused", "p", "one")
	one.State, one.Ended = bothy.StateStopped, &bothy.Ended{At: epoch}
	f.must(f.PutSandbox(f.ctx, one))
	find("once it has ended", "p", "")
	f.must(f.PutSandbox(f.ctx, two))
	find("after that", "p", "two")
	// One that starts again does not get its key back.
	one.State, one.Ended = bothy.StateRunning, nil
	f.must(f.PutSandbox(f.ctx, one))
	find("after a restart of the first", "p", "two")
	f.clock.forward(store.KeyLife + time.Second)
	find("after a day", "p", "")
	f.must(f.PutSandbox(f.ctx, two))
	f.must(f.PutSandbox(f.ctx, keyed("three", "p")))
	f.must(f.PutSandbox(f.ctx, two))
	find("used again after a day", "p", "three")
	failed := keyed("failed", "p")
	failed.Key, failed.State = "another", bothy.StateFailed
	f.must(f.PutSandbox(f.ctx, failed))
	failed.ID, failed.Version = "again", 0
	f.must(f.PutSandbox(f.ctx, failed))
}
