package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
)

// peers are the hosts that a test has.
type peers struct {
	hosts
	all []bothy.ClusterHost
}

func (p *peers) Peers(context.Context) ([]bothy.ClusterHost, error) { return p.all, nil }

// idle is a host that has nothing to do.
func idle(name string, change func(h *bothy.ClusterHost)) bothy.ClusterHost {
	h := bothy.ClusterHost{Name: name, State: bothy.HostUp, LeaseSeconds: 10, HostFigures: bothy.HostFigures{CPUs: 4, MemoryBytes: 100, FreeMemoryBytes: 90}}
	if change != nil {
		change(&h)
	}
	return h
}

// placer is the router of the host "one", which may be changed.
func placer(t *testing.T, all []bothy.ClusterHost, change func(o *RouterOptions)) *Router {
	t.Helper()
	s := &shared{}
	h := &peers{hosts{self: "one", shared: s}, all}
	a, err := OpenAuthority(t.Context(), h, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	o := RouterOptions{
		Hosts: h, Authority: a, Here: func(string) bool { return false }, Port: func(*http.Request) string { return "" }, Agents: "/mcp",
		Full: func() bool { return false }, Ready: func(string) bool { return false },
		Authenticate: func(*http.Request) (Caller, error) { return Caller{Owner: "default"}, nil }, Log: slog.New(slog.DiscardHandler),
		Keeper: NewKeeper(KeeperOptions{Times: Times{Lease: time.Hour}, Renewed: time.Now}),
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, bothy.AsError(err).Detail+" "+bothy.AsError(err).Hint, 599)
		},
	}
	if change != nil {
		change(&o)
	}
	return NewRouter(o)
}

func processorOf(level string) *bothy.Processor {
	return &bothy.Processor{Vendor: "AuthenticAMD", Level: level, CacheLine: 64, Features: bothy.CPUFeatures(level)}
}

func names(hosts []bothy.ClusterHost) (names []string) {
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	return names
}

func TestTheBestOfSomeHostsIsChosen(t *testing.T) {
	self := idle("one", func(h *bothy.ClusterHost) { h.Self = true })
	for name, c := range map[string]struct {
		needs needs
		two   func(h *bothy.ClusterHost)
		three func(h *bothy.ClusterHost)
		// want are the other hosts, best first.
		want []string
	}{
		"less memory":     {two: func(h *bothy.ClusterHost) { h.FreeMemoryBytes = 40 }, want: []string{"three", "two"}},
		"more sandboxes":  {two: func(h *bothy.ClusterHost) { h.Live = 20 }, want: []string{"three", "two"}},
		"busy":            {two: func(h *bothy.ClusterHost) { h.Load = 1.5 }, want: []string{"three", "two"}},
		"cordoned":        {two: func(h *bothy.ClusterHost) { h.State = bothy.HostCordoned }, want: []string{"three"}},
		"without a lease": {three: func(h *bothy.ClusterHost) { h.LeaseSeconds = -1 }, want: []string{"two"}},
		"full":            {three: func(h *bothy.ClusterHost) { h.MaxSandboxes, h.Live = 5, 5 }, want: []string{"two"}},
		"the image is there": {
			needs: needs{template: "aaa"}, two: func(h *bothy.ClusterHost) { h.Templates = []string{"bbb"} },
			three: func(h *bothy.ClusterHost) { h.Templates, h.FreeMemoryBytes = []string{"aaa", "bbb"}, 70 }, want: []string{"three", "two"},
		},
		"the image is there, on a host that is nearly full": {
			needs: needs{template: "aaa"}, two: func(h *bothy.ClusterHost) { h.Templates = []string{"bbb"} },
			three: func(h *bothy.ClusterHost) { h.Templates, h.FreeMemoryBytes = []string{"aaa"}, 5 }, want: []string{"two", "three"},
		},
		"the project's others": {needs: needs{project: "default"}, want: []string{"three", "two"}},
		"a lower processor": {
			needs: needs{memory: &bothy.MemoryNeeds{Engine: "gvisor", Build: "gvisor-1", Processor: processorOf(bothy.CPULevel4)}},
			two: func(h *bothy.ClusterHost) {
				h.Processor = &bothy.HostProcessor{Processor: *processorOf(bothy.CPULevel3)}
			},
			three: func(h *bothy.ClusterHost) {
				h.Processor, h.FreeMemoryBytes = &bothy.HostProcessor{Processor: *processorOf(bothy.CPULevel4)}, 10
			},
			want: []string{"three"},
		},
		"another build": {
			needs: needs{memory: &bothy.MemoryNeeds{Engine: "gvisor", Build: "gvisor-1"}},
			two:   func(h *bothy.ClusterHost) { h.Builds = []string{"gvisor-2", "microvm-1"} },
			three: func(h *bothy.ClusterHost) { h.Builds, h.FreeMemoryBytes = []string{"gvisor-1", "gvisor-2"}, 70 }, want: []string{"three", "two"},
		},
		"another processor of virtual machines": {
			needs: needs{memory: &bothy.MemoryNeeds{Engine: "microvm", Build: "microvm-1", Processor: processorOf(bothy.CPULevel3)}},
			two: func(h *bothy.ClusterHost) {
				h.Processor = &bothy.HostProcessor{Processor: *processorOf(bothy.CPULevel4), CPULevel: bothy.CPUHost}
			},
			three: func(h *bothy.ClusterHost) {
				h.Processor = &bothy.HostProcessor{Processor: *processorOf(bothy.CPULevel4), CPULevel: bothy.CPULevel3}
			},
			want: []string{"three"},
		},
		"a snapshot that one has": {needs: needs{at: "three"}, three: func(h *bothy.ClusterHost) { h.FreeMemoryBytes = 70 }, want: []string{"three", "two"}},
		"labels": {
			needs: needs{labels: map[string]string{"zone": "a", "disk": "fast"}}, two: func(h *bothy.ClusterHost) { h.Labels = map[string]string{"zone": "a"} },
			three: func(h *bothy.ClusterHost) { h.Labels = map[string]string{"zone": "a", "disk": "fast", "x": "y"} }, want: []string{"three"},
		},
		"the project's others, and much to do": {
			needs: needs{project: "default"}, three: func(h *bothy.ClusterHost) { h.FreeMemoryBytes = 30 }, want: []string{"two", "three"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := placer(t, nil, func(o *RouterOptions) {
				o.Spread = func(context.Context, string) (map[string]int, error) { return map[string]int{"two": 2}, nil }
			})
			if _, others := x.choose(t.Context(), []bothy.ClusterHost{self, idle("two", c.two), idle("three", c.three)}, &c.needs); !slices.Equal(names(others), c.want) {
				t.Errorf("they are asked in the order %v, not %v", names(others), c.want)
			}
		})
	}
}

// Of many hosts a few are compared. One that has the image is among them.
func TestAHostWithTheImageIsAmongThoseCompared(t *testing.T) {
	all := []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self = true })}
	for i := range 100 {
		all = append(all, idle(fmt.Sprint("other", i), func(h *bothy.ClusterHost) {
			if h.Templates = []string{"bbb"}; i == 70 {
				h.Templates = []string{"aaa"}
			}
		}))
	}
	for range 20 {
		_, others := placer(t, nil, nil).choose(t.Context(), all, &needs{template: "aaa"})
		if len(others) != candidates || others[0].Name != "other70" {
			t.Fatalf("%v are asked", names(others))
		}
	}
}

// One that is ready here is taken, and otherwise a host that is clearly better.
func TestASandboxIsMadeHereUnlessAnotherHostIsClearlyBetter(t *testing.T) {
	self := idle("one", func(h *bothy.ClusterHost) { h.Self, h.FreeMemoryBytes = true, 85 })
	better := []bothy.ClusterHost{self, idle("two", nil)}
	best := []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self, h.FreeMemoryBytes = true, 40 }), idle("two", nil)}
	ready := func(o *RouterOptions) { o.Ready = func(name string) bool { return name == "python" } }
	spread := func(o *RouterOptions) {
		o.Spread = func(context.Context, string) (map[string]int, error) { return map[string]int{"one": 1}, nil }
	}
	for name, c := range map[string]struct {
		hosts  []bothy.ClusterHost
		needs  needs
		change func(o *RouterOptions)
		want   bool
	}{
		"hardly better":          {better, needs{}, nil, true},
		"clearly better":         {best, needs{}, nil, false},
		"ready here":             {best, needs{name: "python"}, ready, true},
		"another is ready here":  {best, needs{name: "node"}, ready, false},
		"full":                   {better, needs{}, func(o *RouterOptions) { o.Full = func() bool { return true } }, false},
		"one of the project":     {better, needs{project: "default"}, spread, false},
		"none of this project's": {better, needs{}, spread, true},
	} {
		t.Run(name, func(t *testing.T) {
			if here, _ := placer(t, nil, c.change).plan(t.Context(), c.hosts, &c.needs); here != c.want {
				t.Errorf("it is made here: %v", here)
			}
		})
	}
}

// What this host has placed counts before the hosts say so: a burst spreads.
func TestABurstSpreads(t *testing.T) {
	all := []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self = true }), idle("two", nil), idle("three", nil)}
	x := placer(t, all, func(o *RouterOptions) {
		o.Spread = func(context.Context, string) (map[string]int, error) { return map[string]int{}, nil }
	})
	n, got := &needs{project: "default"}, map[string]int{}
	for range 30 {
		here, others := x.plan(t.Context(), all, n)
		name := "one"
		if !here {
			name = others[0].Name
			x.count(name, n)
		}
		got[name]++
	}
	for _, h := range all {
		if got[h.Name] < 6 { // this host is somewhat preferred
			t.Errorf("they are spread as %v", got)
		}
	}
}

// creates are the requests that make a sandbox, in all forms.
var creates = map[string]string{
	"/v1/sandboxes":  `{"template":"python"}`,
	"/sandboxes":     `{"templateID":"base"}`,
	"/v1/containers": `{"name":"box"}`,
	"/mcp":           `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_sandbox","arguments":{}}}`,
}

// full refuses as a door of its own form does, which knows no problem documents.
func full(w http.ResponseWriter, r *http.Request) {
	bothy.LeaveToOthers(r.Context(), bothy.Errorf(bothy.CodeCapacity, "full"))
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.WriteString(w, "data: it is full\n\n")
}

func fullProblem(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", problem.ContentType)
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": bothy.CodeCapacity})
}

// A refusal leads to the next host, in whatever form; silence and other errors do not.
func TestARefusalLeadsToTheNextHost(t *testing.T) {
	invalid := func(w http.ResponseWriter, r *http.Request) {
		bothy.LeaveToOthers(r.Context(), bothy.Errorf(bothy.CodeInvalid, "no"))
		http.Error(w, "invalid", http.StatusBadRequest)
	}
	for name, c := range map[string]struct {
		two  http.HandlerFunc
		want string
		// third says that the other host is asked, too.
		third bool
	}{
		"refused in its own form": {full, "200 done", true},
		"refused":                 {fullProblem, "200 done", true},
		"invalid":                 {invalid, "400 invalid", false},
		"silent":                  {hangsUp, "599 the host two, which must answer this request, does not respond", false},
	} {
		for path, body := range creates {
			t.Run(name+path, func(t *testing.T) {
				s := &shared{}
				two, three := newPeer(t, "two", s, c.two), newPeer(t, "three", s, answers)
				x := placer(t, []bothy.ClusterHost{
					idle("one", func(h *bothy.ClusterHost) { h.Self = true }),
					idle("two", func(h *bothy.ClusterHost) { h.Address = two.address }),
					idle("three", func(h *bothy.ClusterHost) { h.Address, h.FreeMemoryBytes = three.address, 50 }),
				}, func(o *RouterOptions) {
					o.Full = func() bool { return true }
					a, err := OpenAuthority(t.Context(), hosts{self: "one", shared: s}, openVault{})
					if err != nil {
						t.Fatal(err)
					}
					o.Authority = a
				})
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if handled, leave := x.Route(w, r); !handled {
						leave()
						_, _ = io.WriteString(w, "here")
					}
				}))
				t.Cleanup(server.Close)
				res, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprintf("%d %s", res.StatusCode, b); !strings.HasPrefix(got, c.want) {
					t.Errorf("the answer is %q", got)
				}
				if len(three.bodies) != map[bool]int{true: 1}[c.third] || c.third && three.bodies[0] != body {
					t.Errorf("the other host was asked %q", three.bodies)
				}
				if res.Header.Get(headerLeft) != "" {
					t.Error("what hosts say to each other is in the answer")
				}
			})
		}
	}
}

// A host that may lose its last room before it admits a sandbox is asked as the others are: if it refuses,
// they are asked, and if all do, the request waits for it. Silence leads nowhere else.
func TestAHostThatMayBecomeFullIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		tight    int // as many more sandboxes could be too many; 0 is never
		own, two http.HandlerFunc
		want     string
		asked    [2]int
	}{
		"it has room":         {0, answers, answers, "200 here", [2]int{0, 0}},
		"it still has room":   {1, answers, full, "200 done", [2]int{1, 0}},
		"it is full":          {1, full, answers, "200 done", [2]int{1, 1}},
		"all are full":        {1, fullProblem, full, "200 here", [2]int{1, 1}},
		"it is silent":        {1, hangsUp, answers, "599 the host one, which must answer this request, does not respond", [2]int{1, 0}},
		"it has room for one": {2, full, answers, "200 here", [2]int{0, 0}},
	} {
		for path, body := range creates {
			t.Run(name+path, func(t *testing.T) {
				s := &shared{}
				own, two := newPeer(t, "one", s, c.own), newPeer(t, "two", s, c.two)
				x := placer(t, []bothy.ClusterHost{
					idle("one", func(h *bothy.ClusterHost) { h.Self, h.Address = true, own.address }),
					idle("two", func(h *bothy.ClusterHost) { h.Address, h.FreeMemoryBytes = two.address, 50 }),
				}, func(o *RouterOptions) {
					o.Tight = func(more int) bool { return c.tight > 0 && more >= c.tight }
					a, err := OpenAuthority(t.Context(), hosts{self: "one", shared: s}, openVault{})
					if err != nil {
						t.Fatal(err)
					}
					o.Authority = a
				})
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
				w := httptest.NewRecorder()
				handled, leave := x.Route(w, r)
				if again, err := io.ReadAll(r.Body); !handled && (err != nil || string(again) != body) {
					t.Errorf("the body is now %q; %v", again, err)
				}
				if !handled {
					_, _ = io.WriteString(w, "here")
					if n := x.creating.Load(); n != 1 {
						t.Errorf("%d are being created", n)
					}
				}
				leave()
				if n := x.creating.Load(); n != 0 {
					t.Errorf("%d are being created after the end", n)
				}
				if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, c.want) {
					t.Errorf("the answer is %q", got)
				}
				if got := [2]int{len(own.bodies), len(two.bodies)}; got != c.asked {
					t.Errorf("the hosts were asked %v times", got)
				}
			})
		}
	}
}

// Hosts beyond the few that are compared are asked before a sandbox is refused, also one that
// was full when it last said so. Those that cannot have it are not.
func TestEveryHostIsAskedBeforeThereIsNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		hosts int
		last  func(h *bothy.ClusterHost)
		want  string
	}{
		"one of many has room":             {9, nil, "200 done"},
		"it was full a moment ago":         {9, func(h *bothy.ClusterHost) { h.MaxSandboxes, h.Live = 5, 5 }, "200 done"},
		"the only other was full":          {1, func(h *bothy.ClusterHost) { h.MaxSandboxes, h.Live = 5, 5 }, "200 done"},
		"the one with room is cordoned":    {9, func(h *bothy.ClusterHost) { h.State = bothy.HostCordoned }, "200 here"},
		"the one with room has no lease":   {9, func(h *bothy.ClusterHost) { h.LeaseSeconds = 0 }, "200 here"},
		"the one with room has not labels": {9, func(h *bothy.ClusterHost) { h.Labels = nil }, "200 here"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shared{}
			labels := map[string]string{"zone": "a"}
			all := []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self, h.Labels = true, labels })}
			asked := map[string]int{}
			var last *peer
			for i := range c.hosts {
				name := fmt.Sprint("other", i)
				answer := func(w http.ResponseWriter, r *http.Request) { asked[name]++; fullProblem(w, r) }
				if i == c.hosts-1 {
					answer = func(w http.ResponseWriter, r *http.Request) { asked[name]++; answers(w, r) }
				}
				last = newPeer(t, name, s, answer)
				all = append(all, idle(name, func(h *bothy.ClusterHost) {
					h.Address, h.Labels = last.address, labels
					if i == c.hosts-1 && c.last != nil {
						c.last(h)
					}
				}))
			}
			x := placer(t, all, func(o *RouterOptions) {
				o.Full = func() bool { return true }
				a, err := OpenAuthority(t.Context(), hosts{self: "one", shared: s}, openVault{})
				if err != nil {
					t.Fatal(err)
				}
				o.Authority = a
			})
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/v1/sandboxes", strings.NewReader(`{"template":"python","host_labels":{"zone":"a"}}`))
			if handled, leave := x.Route(w, r); !handled {
				leave()
				_, _ = io.WriteString(w, "here")
			}
			if got := fmt.Sprintf("%d %s", w.Code, w.Body); !strings.HasPrefix(got, c.want) {
				t.Errorf("the answer is %q", got)
			}
			for name, n := range asked {
				if n != 1 {
					t.Errorf("%s was asked %d times", name, n)
				}
			}
			if c.want == "200 here" && len(asked) != c.hosts-1 {
				t.Errorf("%d hosts were asked", len(asked))
			}
		})
	}
}

// Where the client has gone, no other host is asked.
func TestNoHostIsAskedForAClientThatHasGone(t *testing.T) {
	x := placer(t, []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self = true }), idle("two", nil)},
		func(o *RouterOptions) { o.Full = func() bool { return true } })
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/sandboxes", strings.NewReader(`{}`))
	cancel()
	w := httptest.NewRecorder()
	if handled, _ := x.Route(w, r); !handled || w.Code != 599 || x.o.Counts.Placed.Load() != 0 {
		t.Errorf("%v %d %s, and %d were asked", handled, w.Code, w.Body, x.o.Counts.Placed.Load())
	}
}

// What no host can have is refused with what there is.
func TestWhatNoHostCanHaveIsRefused(t *testing.T) {
	host := func(name, level, shown string) bothy.ClusterHost {
		return idle(name, func(h *bothy.ClusterHost) {
			h.Processor, h.Labels = &bothy.HostProcessor{Processor: *processorOf(level), CPULevel: shown}, map[string]string{"zone": name}
		})
	}
	dead := host("four", bothy.CPULevel4, bothy.CPUHost)
	dead.State = bothy.HostDead
	all := []bothy.ClusterHost{host("two", bothy.CPULevel2, bothy.CPUHost), host("three", bothy.CPULevel3, bothy.CPUHost), dead}
	e := bothy.AsError(NoHost("snp1", bothy.MemoryNeeds{Engine: "gvisor", Build: "gvisor-1", Processor: processorOf(bothy.CPULevel4)}, all))
	for _, want := range []string{"snp1", "the engine gvisor", "AuthenticAMD x86-64-v4", "two (up, AuthenticAMD x86-64-v2 without", "three (up, AuthenticAMD x86-64-v3 without adx, avx512bw"} {
		if e.Code != bothy.CodeUnsupported || !strings.Contains(e.Detail, want) || strings.Contains(e.Detail, "four") || !strings.Contains(e.Hint, "files_only") {
			t.Errorf("the error is %s; %s", e.Detail, e.Hint)
			break
		}
	}
	e = bothy.AsError(checkLabels(map[string]string{"zone": "four"}, all, bothy.DefaultProject))
	if e.Code != bothy.CodeInvalid || !strings.Contains(e.Detail, "zone=four") || !strings.Contains(e.Hint, "zone=three (three), zone=two (two)") {
		t.Errorf("the error is %s; %s", e.Detail, e.Hint)
	}
	e = bothy.AsError(checkLabels(map[string]string{"zone": "four"}, all, "tenant"))
	if e.Code != bothy.CodeInvalid || strings.Contains(e.Hint, "three") || !strings.Contains(e.Hint, "operator") {
		t.Errorf("to a project the error is %s; %s", e.Detail, e.Hint)
	}
	if e = bothy.AsError(NoHost("snp1", bothy.MemoryNeeds{Engine: "gvisor"}, nil)); strings.Contains(e.Detail, "hosts are") {
		t.Errorf("without hosts the error is %s", e.Detail)
	}
	if err := checkLabels(map[string]string{"zone": "two"}, all, "tenant"); err != nil {
		t.Error(err)
	}

	setProblems(all)
	if p := all[0].ProcessorProblem; !strings.Contains(p, "the host three") || !strings.Contains(p, "engine.cpu_level") || all[1].ProcessorProblem != "" {
		t.Errorf("the problems are %q and %q", p, all[1].ProcessorProblem)
	}
	all = []bothy.ClusterHost{host("two", bothy.CPULevel3, bothy.CPUHost), host("three", bothy.CPULevel4, bothy.CPULevel3)}
	setProblems(all)
	for _, h := range all {
		if h.ProcessorProblem != "" {
			t.Errorf("where all see one level, the host %s has the problem %s", h.Name, h.ProcessorProblem)
		}
	}
}

// Which requests wake a sandbox that is paused is known by their paths.
func TestRequestsThatWake(t *testing.T) {
	for request, want := range map[string][2]bool{
		"POST /v1/sandboxes/" + aSandbox + "/resume":    {true, false},
		"POST /v1/sandboxes/" + aSandbox + "/fork":      {true, false},
		"POST /sandboxes/" + aSandbox + "/connect":      {true, false},
		"POST /v1/sandboxes/" + aSandbox + "/exec":      {false, true},
		"GET /v1/sandboxes/" + aSandbox + "/files/read": {false, true},
		"GET /v1/sandboxes/" + aSandbox + "/metrics":    {false, false},
		"POST /v1/sandboxes/" + aSandbox + "/pause":     {false, false},
		"DELETE /v1/sandboxes/" + aSandbox:              {false, false},
		"POST /v1/sandboxes/" + aSandbox + "/move":      {false, false},
		"GET /v1/sandboxes/" + aSandbox + "/resume":     {false, false},
	} {
		method, path, _ := strings.Cut(request, " ")
		target := ofPath(httptest.NewRequest(method, path, nil))
		if got := [2]bool{target.kind == wake, target.kind == use}; got != want {
			t.Errorf("%s: %v", request, got)
		}
	}
}

func TestAHostFitsWhatItMayHave(t *testing.T) {
	h := idle("one", func(h *bothy.ClusterHost) {
		h.Processor, h.Labels = &bothy.HostProcessor{Processor: *processorOf(bothy.CPULevel3)}, map[string]string{"zone": "a"}
	})
	of := func(level string, labels map[string]string) *Wanted {
		return &Wanted{Memory: &bothy.MemoryNeeds{Engine: "gvisor", Processor: processorOf(level)}, Labels: labels}
	}
	for _, c := range []struct {
		w    *Wanted
		want bool
	}{
		{of(bothy.CPULevel3, nil), true}, {of(bothy.CPULevel4, nil), false}, {&Wanted{}, true},
		{of(bothy.CPULevel2, map[string]string{"zone": "a"}), true}, {of(bothy.CPULevel2, map[string]string{"zone": "b"}), false},
	} {
		if got := Fits(&h, c.w); got != c.want {
			t.Errorf("%+v fits: %v", c.w, got)
		}
	}
}

// Each API has fields of its own for what decides which host gets a new sandbox. Fields of another, and
// values that only look like ids, count for nothing.
func TestWhatANewSandboxNeeds(t *testing.T) {
	const snapshot, other = "snp0123456789abcdef", "snpfedcba9876543210"
	x := &Router{o: RouterOptions{
		Agents: "/mcp", Containers: "of-containers",
		Origin: func(_ context.Context, project, asked string) (string, string) {
			switch {
			case project != "p":
				t.Errorf("asked for the project %q", project)
			case asked == "base":
				return "python", ""
			case asked == "kept", asked == snapshot+":default":
				return "", snapshot
			}
			return asked, ""
		},
	}}
	zone := map[string]string{"zone": "a", "disk": "fast"}
	const labels = `"host_labels": {"zone": "a", "disk": "fast"}`
	tool := func(name, arguments string) string {
		return `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "` + name + `", "arguments": {` + arguments + `}}}`
	}
	for _, c := range []struct {
		path, body string
		want       target
	}{
		{"/v1/sandboxes", `{"template": "node", ` + labels + `}`, target{kind: create, template: "node", labels: zone}},
		{"/v1/sandboxes", `{"snapshot_id": "` + snapshot + `", ` + labels + `}`, target{kind: create, snapshot: snapshot, labels: zone}},
		{"/v1/sandboxes", `{"templateID": "node", "metadata": {"bothy.host_labels": "zone=b"}}`, target{kind: create}},
		{"/v1/sandboxes", `{"snapshot_id": "kept"}`, target{kind: create}},
		{"/v1/sandboxes", `{"host_labels": 1}`, target{kind: create}},
		{"/v1/containers", `{"name": "x", ` + labels + `}`, target{kind: create, template: "of-containers", labels: zone}},
		{"/v1/containers", `{"name": "x", "snapshot_id": "` + other + `", "template": "node"}`, target{kind: create, template: "of-containers"}},
		{"/sandboxes", `{"templateID": "base", "metadata": {"bothy.host_labels": "zone=a, disk=fast"}}`, target{kind: create, template: "python", labels: zone}},
		{"/v2/sandboxes", `{"templateID": "kept", "metadata": {"bothy.host_labels": "zone=a,disk=fast"}}`, target{kind: create, snapshot: snapshot, labels: zone}},
		{"/v2/sandboxes", `{"templateID": "` + snapshot + `:default", ` + labels + `}`, target{kind: create, snapshot: snapshot}},
		{"/v2/sandboxes", `{"templateID": "base", "snapshot_id": "` + other + `", "metadata": {"bothy.host_labels": "zone"}}`, target{kind: create, template: "python"}},
		{"/mcp", tool("create_sandbox", `"template": "node", `+labels), target{kind: create, template: "node", labels: zone, alone: true}},
		{"/mcp", tool("create_sandbox", `"snapshot_id": "`+snapshot+`", `+labels), target{kind: create, snapshot: snapshot, labels: zone, alone: true}},
		{"/mcp", tool("create_sandbox", `"name": "`+aSandbox+`", "template": "`+other+`"`), target{kind: create, template: other, alone: true}},
		{"/mcp", tool("write_file", `"sandbox_id": "`+aSandbox+`", "path": "`+other+`", "content": "sbxfedcba9876543210"`), target{kind: use, sandbox: aSandbox, alone: true}},
		{"/mcp", tool("resume_sandbox", `"id": "`+snapshot+`"`), target{kind: wake, snapshot: snapshot, alone: true}},
	} {
		r := httptest.NewRequest("POST", c.path, strings.NewReader(c.body))
		got := ofPath(r)
		if err := x.readTarget(r, &got, "p"); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s: %+v, not %+v; %v", c.path, c.body, got, c.want, err)
		}
		if again, err := io.ReadAll(r.Body); err != nil || string(again) != c.body {
			t.Errorf("%s %s: the body is now %q; %v", c.path, c.body, again, err)
		}
	}
}

// A template that no suitable host knows is not a lack of room, after which clients would try again.
func TestAnUnknownTemplateIsNotALackOfRoom(t *testing.T) {
	unknown := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"template_not_found","detail":"there is no template nothing","hint":"List them."}`)
	}
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		want    bothy.Code
	}{
		"no host knows it":     {[]http.HandlerFunc{unknown, unknown}, bothy.CodeTemplateNotFound},
		"one may, but is full": {[]http.HandlerFunc{unknown, fullProblem}, bothy.CodeCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shared{}
			labels := map[string]string{"zone": "a"}
			all := []bothy.ClusterHost{idle("one", func(h *bothy.ClusterHost) { h.Self = true })}
			for i, answer := range c.answers {
				p := newPeer(t, fmt.Sprint("other", i), s, answer)
				all = append(all, idle(fmt.Sprint("other", i), func(h *bothy.ClusterHost) { h.Address, h.Labels = p.address, labels }))
			}
			var failed error
			x := placer(t, all, func(o *RouterOptions) {
				a, err := OpenAuthority(t.Context(), hosts{self: "one", shared: s}, openVault{})
				if err != nil {
					t.Fatal(err)
				}
				o.Authority, o.Fail = a, func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }
			})
			r := httptest.NewRequest(http.MethodPost, "/v1/sandboxes", strings.NewReader(`{"template":"nothing","host_labels":{"zone":"a"}}`))
			handled, leave := x.Route(httptest.NewRecorder(), r)
			leave()
			if !handled || bothy.ErrorCode(failed) != c.want {
				t.Errorf("handled %v: %v, want %s", handled, failed, c.want)
			}
		})
	}
}
