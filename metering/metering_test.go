package metering_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/store"
)

func TestSecondsAreCounted(t *testing.T) {
	w := newWorld(t)
	m := w.start("a", func(sb *store.Sandbox) { sb.CPU, sb.MemoryMB = 2.5, 512 })
	m.use(3, 100, 200)
	w.passing(61*time.Second + 250*time.Millisecond)
	m.use(0.5, 1, 2)
	w.stop("a")
	w.clock.pass(time.Hour) // it does not run any more
	got := w.total()
	want := bothy.Usage{VCPUSeconds: 2.5 * 61.25, CPUSeconds: 3.5, MemoryMBSeconds: 512 * 61.25, EgressBytes: 101, IngressBytes: 202}
	want.Cost = want.VCPUSeconds
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEarlierUsageIsNotCounted(t *testing.T) {
	w := newWorld(t)
	warm := &machine{reading: bothy.MeterReading{CPUSeconds: 7, NetworkCounters: bothy.NetworkCounters{EgressBytes: 9}}}
	now := w.clock.Now().Wall
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a", ProjectID: "p", CPU: 1, MemoryMB: 1, StartedAt: &now}}
	sb.MeterState = w.Starting(t.Context(), sb, warm.read)
	w.Started(t.Context(), sb, warm.read, false)
	warm.use(1, 1, 0)
	w.passing(time.Second)
	if got := w.total(); got.CPUSeconds != 1 || got.EgressBytes != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestPausesCostNothing(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.passing(20 * time.Second)
	w.stop("a")
	w.passing(24 * time.Hour / 100)
	w.start("a")
	w.passing(5 * time.Second)
	w.wantVCPU("with a pause", 25)
}

func TestGroups(t *testing.T) {
	w := newWorld(t)
	for i, team := range []string{"red", "red", "blue", ""} {
		w.start(fmt.Sprint("s", i), func(sb *store.Sandbox) {
			sb.ProjectID, sb.Template = fmt.Sprint("p", i%2), fmt.Sprint("t", i/2)
			if team != "" {
				sb.Metadata = map[string]string{"team": team, "a.b\"c": "x"}
			}
		})
	}
	w.clock.pass(30 * time.Minute) // to 13:00
	w.passing(30 * time.Second)
	check := func(want map[string]float64, by ...string) {
		t.Helper()
		got := map[string]float64{}
		for _, i := range w.report(by...).Items {
			key := ""
			for _, b := range by {
				key += "/" + i.Group(b)
			}
			got[key] += i.VCPUSeconds
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("by %v: %v, want %v", by, got, want)
		}
	}
	const each = 1830
	check(map[string]float64{"/2026-03-10": 4 * each}, "day")
	check(map[string]float64{"/2026-03-10T12:00:00Z": 4 * 1800, "/2026-03-10T13:00:00Z": 4 * 30}, "hour")
	check(map[string]float64{"/p0": 2 * each, "/p1": 2 * each}, "project")
	check(map[string]float64{"/t0": 2 * each, "/t1": 2 * each}, "template")
	check(map[string]float64{"/s0": each, "/s1": each, "/s2": each, "/s3": each}, "sandbox")
	check(map[string]float64{"/red": 2 * each, "/blue": each, "/": each}, "label:team")
	check(map[string]float64{"/x": 3 * each, "/": each}, `label:a.b"c`)
	check(map[string]float64{"/p0/t0": each, "/p1/t0": each, "/p0/t1": each, "/p1/t1": each}, "project", "template")
	check(map[string]float64{"/2026-03-10/red/t0": 2 * each, "/2026-03-10/blue/t1": each, "/2026-03-10//t1": each}, "day", "label:team", "template")
	check(map[string]float64{"/red/s0": each, "/red/s1": each, "/blue/s2": each, "//s3": each}, "label:team", "sandbox")
	check(map[string]float64{"/red/x": 2 * each, "/blue/x": each, "//": each}, "label:team", `label:a.b"c`)
	check(map[string]float64{"/": 4 * each}, "label:none")
}

func TestPartOfADay(t *testing.T) {
	w := newWorld(t)
	w.start("a", func(sb *store.Sandbox) { sb.Metadata = map[string]string{"team": "red"} })
	w.clock.pass(50 * time.Hour) // 12:30 to 14:30, two days on
	w.tick()
	for _, c := range []struct {
		from, to string
		want     float64 // hours
	}{
		{"2026-03-10T00:00:00Z", "2026-03-13T00:00:00Z", 50},
		{"2026-03-10T13:00:00Z", "2026-03-10T14:00:00Z", 1},
		{"2026-03-10T13:20:00Z", "2026-03-10T13:40:00Z", 1}, // a whole hour
		{"2026-03-10T22:00:00Z", "2026-03-12T02:00:00Z", 28},
		{"2026-03-11T00:00:00Z", "2026-03-12T00:00:00Z", 24},
		{"2026-03-12T14:00:00Z", "2026-03-12T15:00:00Z", 0.5},
		{"2026-03-13T00:00:00Z", "2026-03-14T00:00:00Z", 0},
	} {
		from, _ := time.Parse(time.RFC3339, c.from)
		to, _ := time.Parse(time.RFC3339, c.to)
		for _, by := range []string{"day", "hour", "project", "template", "sandbox", "label:team", "label:none"} {
			for _, sandbox := range []string{"", "a"} {
				r, err := w.Usage(w.operator(), bothy.UsageQuery{From: from, To: to, GroupBy: []string{by}, Sandbox: sandbox})
				if err != nil {
					t.Fatal(err)
				}
				if r.Total.VCPUSeconds != c.want*3600 {
					t.Errorf("%s to %s by %s: %v hours, want %v", c.from, c.to, by, r.Total.VCPUSeconds/3600, c.want)
				}
			}
		}
	}
}

func TestRelabelledFromNowOn(t *testing.T) {
	w := newWorld(t)
	w.start("a", func(sb *store.Sandbox) { sb.Metadata = map[string]string{"team": "red"} })
	w.passing(15 * time.Second)
	sb := w.sandboxes["a"]
	sb.Metadata = map[string]string{"team": "blue"}
	w.Changed(t.Context(), sb)
	w.passing(5 * time.Second)
	got := map[string]float64{}
	for _, i := range w.report("label:team").Items {
		got[i.Labels["team"]] = i.VCPUSeconds
	}
	if got["red"] != 15 || got["blue"] != 5 {
		t.Errorf("got %v", got)
	}
}

func TestBackwardClock(t *testing.T) {
	w := newWorld(t)
	m := w.start("a")
	w.passing(15 * time.Second)
	w.clock.set(-3 * time.Hour)
	m.use(1, 1, 1)
	w.passing(15 * time.Second)
	w.clock.set(48 * time.Hour)
	w.passing(15 * time.Second)
	w.stop("a")
	w.wantVCPU("with a clock that was set twice", 45)
	for _, i := range w.report("hour").Items {
		if i.VCPUSeconds < 0 || i.CPUSeconds < 0 {
			t.Errorf("less than nothing: %+v", i)
		}
	}
}

func TestBackwardClockBetweenServers(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.passing(20 * time.Second)
	w.clock.set(-5 * time.Hour)
	w.crash()
	w.clock.pass(7 * time.Second)
	w.adopt("a")
	w.Recovered()
	w.passing(3 * time.Second)
	w.wantVCPU("over a restart with a clock set back", 30)
}

func TestCrash(t *testing.T) {
	w := newWorld(t)
	m := w.start("a")
	w.passing(10 * time.Second) // written
	w.clock.pass(9 * time.Second)
	m.use(4, 40, 0)
	w.crash()
	w.clock.pass(time.Hour) // the sandbox runs on
	w.adopt("a")
	w.Recovered()
	w.passing(time.Second)
	w.wantVCPU("a sandbox that outlived the server", 10+9+3600+1)
	if got := w.total(); got.CPUSeconds != 4 || got.EgressBytes != 40 {
		t.Errorf("its counters continued: %+v", got)
	}
	w.crash()
	w.crash() // before anything was adopted
	w.adopt("a")
	w.Recovered()
	w.wantVCPU("crashed twice more", 10+9+3600+1)
}

func TestAskedRightAfterACrash(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.clock.pass(time.Minute)
	w.crash()
	w.adopt("a")
	w.Recovered()
	w.wantVCPU("before anything was written", 60)
}

func TestCrashBeforeTheFirstMark(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.clock.pass(500 * time.Millisecond)
	w.crash()
	w.clock.pass(time.Minute)
	w.adopt("a")
	w.wantVCPU("since it began to run", 60.5)
}

func TestDiedWithTheServer(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.passing(25 * time.Second)
	w.crash()
	w.clock.pass(time.Hour)
	w.clock.reboot("boot-2")
	w.Recovered() // nobody has adopted it
	w.passing(11 * time.Second)
	if got := w.total().VCPUSeconds; got > 25 || got < 15 {
		t.Errorf("%v vCPU-seconds of a sandbox that was last seen after 25", got)
	}
}

// A pause must not be counted after a crash once the sandbox runs again.
func TestMarkOfAnEarlierRun(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.passing(10 * time.Second)
	w.stop("a") // not written
	w.clock.pass(time.Hour)
	w.start("a") // not written either
	w.clock.pass(time.Second)
	w.crash()
	w.clock.pass(2 * time.Second)
	w.adopt("a")
	w.wantVCPU("of the second run since it began", 10+3)
}

func TestGatewayThatForgot(t *testing.T) {
	w := newWorld(t)
	m := w.start("a")
	m.use(0, 150, 0)
	w.passing(10 * time.Second)
	w.crash()
	m.use(0, -50, 0) // what the new gateway remembers
	w.adopt("a")
	m.use(0, 60, 0)
	w.passing(time.Second)
	if got := w.total().EgressBytes; got != 150+60 {
		t.Errorf("%d bytes, want 210", got)
	}
}

func TestMachineWithoutCounters(t *testing.T) {
	w := newWorld(t)
	m := w.start("a")
	m.use(2, 0, 0)
	w.passing(10 * time.Second)
	m.mu.Lock()
	m.err = errors.New("its cgroup is gone")
	m.mu.Unlock()
	w.passing(5 * time.Second)
	w.stop("a")
	if got := w.total(); got.VCPUSeconds != 15 || got.CPUSeconds != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestFullDisk(t *testing.T) {
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		w.start("a")
		w.passing(15 * time.Second)
		w.disk.set(!after, after) // refused, or written and then reported as refused
		w.passing(30 * time.Second)
		if w.Health() == nil {
			t.Errorf("it is not reported that usage is not written")
		}
		w.stop("a")
		w.start("b")
		w.passing(5 * time.Second)
		if r := w.report("day"); !r.AsOf.Before(w.clock.Now().Wall.Add(-20 * time.Second)) {
			t.Errorf("the answer says that it is complete as of %v", r.AsOf)
		}
		w.disk.set(false, false)
		w.passing(time.Second)
		if err := w.Health(); err != nil {
			t.Errorf("after the disk was freed: %v", err)
		}
		w.wantVCPU(fmt.Sprint("nothing was lost or counted twice, written=", after), 45+6)
	}
}

func TestKilledWhileWriting(t *testing.T) {
	for _, c := range []struct {
		point string
		want  float64
	}{{"store.usage", 100}, {"store.usage.written", 100}} {
		t.Run(c.point, func(t *testing.T) {
			w := newWorld(t)
			w.start("a")
			w.passing(10 * time.Second)
			remove := failpoint.Set(c.point, func() error { return errors.New("killed") })
			w.passing(20 * time.Second)
			w.crash()
			remove()
			w.clock.pass(69 * time.Second)
			w.adopt("a")
			w.passing(time.Second)
			w.wantVCPU("killed at "+c.point, c.want)
		})
	}
}

func TestStorage(t *testing.T) {
	w := newWorld(t)
	w.templates = []*store.Template{{Template: bothy.Template{Name: "t", Digest: "d", SizeBytes: 5 << 20, CreatedAt: w.clock.Now().Wall.AddDate(-1, 0, 0)}}}
	w.start("a", func(sb *store.Sandbox) { sb.Metadata = map[string]string{"team": "red"} })
	w.stop("a")
	snapshot := &bothy.Snapshot{ID: "s", SandboxID: "a", ProjectID: "p", Template: "t", SizeBytes: 10<<20 + 1, CreatedAt: w.clock.Now().Wall}
	w.snapshots = append(w.snapshots, snapshot)
	w.passing(90 * time.Second)
	w.crash() // it is counted from the last minute on
	w.clock.pass(30 * time.Second)
	w.passing(60 * time.Second)
	w.snapshots = nil
	w.SnapshotDeleted(t.Context(), snapshot)
	w.passing(120 * time.Second)
	r := w.report("label:team")
	got := map[string]float64{}
	for _, i := range r.Items {
		got[i.Labels["team"]] = i.SnapshotMBSeconds
	}
	if got["red"] != 180*11 {
		t.Errorf("snapshots took up %v MB-seconds, want %v", got, 180*11)
	}
	if got := r.Total.TemplateMBSeconds; got > 300*5 || got < 240*5 {
		t.Errorf("templates took up %v MB-seconds, want those of the last 240 to 300 seconds", got)
	}
}

func TestSnapshotBetweenTwoTicks(t *testing.T) {
	w := newWorld(t)
	w.passing(61 * time.Second)
	short := &bothy.Snapshot{ID: "s", SandboxID: "gone", ProjectID: "p", SizeBytes: 1, CreatedAt: w.clock.Now().Wall}
	w.clock.pass(7 * time.Second)
	w.SnapshotDeleted(t.Context(), short)
	w.passing(120 * time.Second)
	if got := w.total().SnapshotMBSeconds; got != 7 {
		t.Errorf("%v MB-seconds, want 7", got)
	}
}

// TestAgainstAnOracle starts, pauses and resumes sandboxes, crashes servers and changes clocks at random,
// and compares the result with what really happened.
func TestAgainstAnOracle(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			r := rand.New(rand.NewPCG(seed, 1))
			ids := []string{"a", "b", "c", "d"}
			running := map[string]bool{}
			used := map[string]time.Duration{}
			lost := map[string]time.Duration{} // what a crash may have lost
			pass := func(d time.Duration) {
				w.clock.pass(d)
				for id := range running {
					used[id] += d
				}
			}
			recent := map[string]time.Duration{} // of stopped ones, since the last write
			for range 300 {
				id := ids[r.IntN(len(ids))]
				switch r.IntN(10) {
				case 0, 1:
					if running[id] {
						w.stop(id)
						delete(running, id)
					} else {
						w.start(id)
						running[id] = true
					}
				case 2:
					if r.IntN(4) > 0 {
						continue
					}
					w.crash()
					down := time.Duration(r.IntN(3000)) * time.Millisecond
					pass(down)
					for _, id := range ids {
						lost[id] += recent[id]
						switch {
						case running[id] && r.IntN(4) > 0:
							w.adopt(id)
							recent[id] += down // not written yet
						case running[id]: // it died meanwhile
							lost[id] += down
							delete(running, id)
							fallthrough
						default:
							delete(recent, id)
						}
					}
					w.Recovered()
				case 3:
					w.clock.set(time.Duration(r.IntN(7200)-3600) * time.Second)
				case 4:
					w.disk.set(r.IntN(2) == 0, false)
				default:
					d := time.Duration(r.IntN(2500)) * time.Millisecond
					pass(d)
					for id := range running {
						recent[id] += d
					}
					w.tick()
					if w.Health() == nil && w.Unwritten() == 0 {
						clear(recent)
					}
				}
			}
			w.disk.set(false, false)
			w.tick()
			got := map[string]time.Duration{}
			for _, i := range w.report("sandbox").Items {
				got[i.Sandbox] += time.Duration(i.VCPUSeconds * float64(time.Second)).Round(time.Millisecond)
			}
			for _, id := range ids {
				if got[id] > used[id] {
					t.Errorf("%s ran for %v, and %v were counted", id, used[id], got[id])
				}
				if got[id] < used[id]-lost[id] {
					t.Errorf("%s ran for %v, of which up to %v could be lost, and %v were counted", id, used[id], lost[id], got[id])
				}
			}
		})
	}
}

func TestProjectsSeeTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.start("a", func(sb *store.Sandbox) { sb.ProjectID = "red" })
	w.start("b", func(sb *store.Sandbox) { sb.ProjectID = "blue" })
	w.passing(5 * time.Second)
	ask := func(project, asked string, scopes ...bothy.Scope) (float64, error) {
		ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: project, Scopes: scopes})
		r, err := w.Usage(ctx, bothy.UsageQuery{Project: asked})
		if err != nil {
			return 0, err
		}
		return r.Total.VCPUSeconds, nil
	}
	for _, c := range []struct {
		project, asked string
		scopes         []bothy.Scope
		want           float64
		code           bothy.Code
	}{
		{"red", "", []bothy.Scope{bothy.ScopeSandboxesRead}, 5, ""},
		{"red", "red", []bothy.Scope{bothy.ScopeSandboxesRead}, 5, ""},
		{"red", "blue", bothy.AllScopes, 0, bothy.CodeProjectNotFound},
		{"red", "", []bothy.Scope{bothy.ScopeTemplatesRead}, 0, bothy.CodeForbidden},
		{"default", "", []bothy.Scope{bothy.ScopeSandboxesRead}, 0, ""}, // no admin: its own
		{"default", "red", []bothy.Scope{bothy.ScopeSandboxesRead}, 0, bothy.CodeProjectNotFound},
		{"default", "", bothy.AllScopes, 10, ""},
		{"default", "blue", bothy.AllScopes, 5, ""},
		{"default", "nobody", bothy.AllScopes, 0, bothy.CodeProjectNotFound},
	} {
		got, err := ask(c.project, c.asked, c.scopes...)
		if bothy.ErrorCode(err) != c.code || got != c.want {
			t.Errorf("%s asks for %q with %v: %v, %v", c.project, c.asked, c.scopes, got, err)
		}
	}
}

func TestBadQueries(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now().Wall
	for name, q := range map[string]bothy.UsageQuery{
		"backwards":       {From: now, To: now.Add(-time.Hour)},
		"for ever":        {From: now.AddDate(-30, 0, 0), To: now},
		"years by hours":  {From: now.AddDate(-2, 0, 0), To: now, GroupBy: []string{"hour"}},
		"by nothing":      {GroupBy: []string{"colour"}},
		"by no label":     {GroupBy: []string{"label:"}},
		"by day and hour": {GroupBy: []string{"day", "hour"}},
		"twice":           {GroupBy: []string{"project", "project"}},
		"many labels":     {GroupBy: []string{"label:a", "label:b", "label:c", "label:d", "label:e"}},
		"cursor":          {Cursor: "x"},
		"not its cursor":  {Cursor: "WyIxIiwiIiwiIiwiIl0", GroupBy: []string{"label:a"}},
		"before all":      {Cursor: "WyItMSIsIiIsIiIsIiJd"},
		"limit":           {Limit: 10001},
	} {
		_, err := w.Usage(w.operator(), q)
		if bothy.ErrorCode(err) != bothy.CodeInvalid || bothy.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooManyLabels(t *testing.T) {
	w := newWorld(t)
	w.start("a", func(sb *store.Sandbox) {
		sb.Metadata = map[string]string{"a-first": strings.Repeat("x", 300)}
		for i := range 100 {
			sb.Metadata[fmt.Sprintf("k%02d", i)] = "v"
		}
	})
	w.passing(time.Second)
	for label, want := range map[string]string{"a-first": "", "k00": "v", "k15": "v", "k16": ""} {
		if got := w.report("label:" + label).Items[0].Labels[label]; got != want {
			t.Errorf("%s is %q, want %q", label, got, want)
		}
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	for i := range 25 {
		w.start(fmt.Sprintf("s%02d", i))
	}
	w.passing(time.Second)
	var all []string
	q := bothy.UsageQuery{GroupBy: []string{"sandbox"}, Limit: 10}
	for {
		r, err := w.Usage(w.operator(), q)
		if err != nil {
			t.Fatal(err)
		}
		if r.Total.VCPUSeconds != 25 {
			t.Errorf("the total is %v", r.Total)
		}
		for _, i := range r.Items {
			all = append(all, i.Sandbox)
		}
		if q.Cursor = r.NextCursor; q.Cursor == "" {
			break
		}
	}
	if len(all) != 25 || !slices.IsSorted(all) {
		t.Errorf("got %v", all)
	}
}

// queries are a store whose queries for one project wait.
type queries struct {
	store.Usage
	inside chan struct{} // gets one for each query of the project red
	free   chan struct{} // lets one of them go on
}

func (q *queries) QueryUsage(ctx context.Context, u store.UsageQuery) ([]store.UsageGroup, error) {
	if u.In.Project == "red" {
		q.inside <- struct{}{}
		<-q.free
	}
	return q.Usage.QueryUsage(ctx, u)
}

// However many questions a project asks, it has one of the store's two places.
func TestAProjectAsksOneQuestionAtATime(t *testing.T) {
	w := newWorld(t)
	q := &queries{w.disk.Usage, make(chan struct{}, 10), make(chan struct{})}
	w.disk.Usage = q
	ask := func(project string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := w.Usage(bothy.WithCaller(ctx, &bothy.Caller{ProjectID: project, Scopes: bothy.AllScopes}), bothy.UsageQuery{})
		return err
	}
	var red sync.WaitGroup
	for range 5 {
		red.Go(func() {
			if err := ask("red"); err != nil {
				t.Error(err)
			}
		})
	}
	for range 5 {
		<-q.inside
		for range 20 {
			if err := ask("blue"); err != nil {
				t.Fatal(err)
			}
		}
		if more := len(q.inside); more > 0 {
			t.Errorf("%d questions of one project are asked at once", more+1)
		}
		q.free <- struct{}{}
	}
	red.Wait()
}
