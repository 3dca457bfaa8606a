package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/engine/cgroup"
)

const (
	// serverMemoryMB is what a server may use that is attacked, and of which a single attack may make it use half.
	serverMemoryMB = 1024
	// attackRounds is how often attacks are made at the same time, if BOTHY_ATTACK_TIME does not say for how long.
	attackRounds = 4
	// attackName is a host that sandboxes can reach.
	attackName, attackAddr = "attacked.example.org", "127.0.0.78"
)

// attacker is a tenant who may do everything in its own project.
type attacker struct {
	*tenant
	victim   *tenant
	admin    *client.Client
	adminKey string
	builds   atomic.Int64
}

// siege is a server with little memory, a tenant who attacks it, and one who works meanwhile.
type siege struct {
	*server
	group  *cgroup.Group
	pid    int
	bad    *attacker
	victim *tenant
	now    atomic.Value // the names of the attacks that are made
}

func newSiege(t *testing.T) *siege {
	t.Helper()
	parent, err := cgroup.NewParent(parentName())
	if err != nil {
		t.Fatal(err)
	}
	group, err := parent.Create("server", cgroup.Limits{MemoryBytes: serverMemoryMB << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the server's own end
		group.Remove()
		if err := parent.Remove(); err != nil {
			t.Error(err)
		}
	})
	s := stoppedServer(t)
	s.NoPool, s.SameAddress = true, true
	s.Settings = "network: {allow: [127.0.0.0/8]}\nwebhooks: {allow: [127.0.0.0/8]}\n"
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+attackAddr+" "+attackName+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// It is in the group from the beginning, and so can see how much memory it has.
	s.Wrap = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`for group in /sys/fs/cgroup/*/"$1" /sys/fs/cgroup/"$1"; do [ ! -d "$group" ] || echo $$ >"$group/cgroup.procs"; done
		mount --bind "$0" /etc/hosts && shift && exec "$@"`, hosts, parentName() + "/server"}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	victim, bad := s.tenant(t, "victim"), s.tenant(t, "bad")
	k, err := s.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Name: "admin", ProjectID: "bad", Scopes: []bothy.Scope{bothy.ScopeAdmin}})
	if err != nil {
		t.Fatal(err)
	}
	return &siege{
		server: s, group: group, pid: s.PID(), victim: victim,
		bad: &attacker{tenant: bad, victim: victim, admin: client.New(s.URL(), k.Key), adminKey: k.Key},
	}
}

func parentName() string { return fmt.Sprintf("bothytest-attacked-%d", os.Getpid()) }

// start lets the victim work until stop is called, which returns how long its commands took. None may fail.
func (x *siege) start(t *testing.T) (stop func() []time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var took []time.Duration
	done.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			status, text := x.victim.once("POST", "/exec", x.victim.run("echo here"), nil)
			took = append(took, time.Since(began))
			if status != 200 || !strings.Contains(text, "here") {
				t.Errorf("the victim's command %d under %q: %d %s", len(took), x.now.Load(), status, text)
				return
			}
		}
	})
	return func() []time.Duration {
		cancel()
		done.Wait()
		slices.Sort(took)
		return took
	}
}

// attack makes attacks at the same time, and returns what the server said to each.
func (x *siege) attack(t *testing.T, list ...attack) []string {
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.name
	}
	x.now.Store(names)
	said := make([]string, len(list))
	var all sync.WaitGroup
	for i, a := range list {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			said[i] = a.do(x.bad, ctx)
		})
	}
	all.Wait()
	if n := x.group.OOMKills(); n > 0 || !x.alive() {
		t.Fatalf("%q: the server has ended, %d processes were killed for their memory", names, n)
	}
	return said
}

// alive reports whether the server is the process that it was.
func (x *siege) alive() bool {
	return x.PID() == x.pid && x.Signal(0) == nil
}

// peakMB is the peak of the memory of the server's group. The cache of its files is part of it.
func (x *siege) peakMB() int {
	n := 0
	for _, pattern := range []string{"/sys/fs/cgroup/memory/*/memory.max_usage_in_bytes", "/sys/fs/cgroup/*/memory.peak"} {
		files, _ := filepath.Glob(strings.Replace(pattern, "*", parentName()+"/server", 1))
		for _, name := range files {
			b, _ := os.ReadFile(name)
			n, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
	}
	return n >> 20
}

// What each once took all memory of the server, or kept it busy for good, is refused with a reason within its
// memory. Another tenant's commands succeed meanwhile, also if several attacks are made at once, and the server
// starts again. BOTHY_ATTACK_TIME is for how long attacks are made at random, and BOTHY_ATTACK_SEED repeats a run.
func TestTheServerOutlivesAttacks(t *testing.T) {
	x := newSiege(t)
	list := attacks(t)
	stop := x.start(t)
	select {
	case <-time.After(3 * time.Second): // for comparison
	case <-t.Context().Done():
	}
	quiet := stop()
	stop = x.start(t)
	began, own := time.Now(), 0
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			x.peak(t)
			start := time.Now()
			said := x.attack(t, a)[0]
			if !strings.Contains(said, a.says) || a.says != "" && said == "" {
				t.Errorf("it says %q, and not %q", said, a.says)
			}
			mb := x.peak(t)
			if own = max(own, mb); mb > serverMemoryMB/2 {
				t.Errorf("the server took %d MB", mb)
			}
			t.Logf("%v, %d MB: %.200s", time.Since(start).Round(time.Millisecond), mb, said)
		})
		if t.Failed() {
			break
		}
	}
	rounds := x.atRandom(t, list)
	own = max(own, x.peak(t))
	loud := stop()
	t.Logf("%d attacks and %d rounds of several in %v: the server took up to %d MB, with its files %d MB", len(list), rounds, time.Since(began).Round(time.Second), own, x.peakMB())
	t.Logf("a command of another tenant took %v at rest (%d), and %v meanwhile (%d)", spread(quiet), len(quiet), spread(loud), len(loud))
	x.noFailures(t)
	again := x.bad.cutOff(t.Context())
	if err := x.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	if status, text := x.victim.once("POST", "/exec", x.victim.run("echo here"), nil); status != 200 || !strings.Contains(text, "here") {
		t.Errorf("after a restart: %d %s", status, text)
	}
	again()
}

// atRandom makes two to four attacks at a time, and returns how often.
func (x *siege) atRandom(t *testing.T, list []attack) (rounds int) {
	most, err := time.ParseDuration(cmp.Or(os.Getenv("BOTHY_ATTACK_TIME"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("BOTHY_ATTACK_SEED"), fmt.Sprint(rand.Uint32())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BOTHY_ATTACK_SEED=%d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for end := time.Now().Add(most); !t.Failed() && (most == 0 && rounds < attackRounds || time.Now().Before(end)); rounds++ {
		var some []attack
		for _, i := range chance.Perm(len(list))[:2+chance.IntN(3)] {
			some = append(some, list[i])
		}
		x.attack(t, some...)
	}
	return rounds
}

// noFailures reports what the server logged as a failure of its own.
func (x *siege) noFailures(t *testing.T) {
	for _, line := range x.Log() {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			t.Error(line)
		}
	}
}

// spread is the median and the 99th percentile.
func spread(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "nothing"
	}
	ms := func(part float64) time.Duration {
		return sorted[int(part*float64(len(sorted)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%v (p99 %v)", ms(0.5), ms(0.99))
}
