package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
)

// claimsVariable names the environment variable that says how many claims are made.
const claimsVariable = "BOTHY_TEST_CLAIMS"

// call is one line of the history that test/linear reads.
type call struct {
	Sandbox string `json:"sandbox"`
	Host    string `json:"host"`
	Op      string `json:"op"`
	Lost    string `json:"lost,omitempty"`
	Begin   int64  `json:"begin"`
	End     int64  `json:"end"`
	Unknown bool   `json:"unknown,omitempty"`
	OK      bool   `json:"ok,omitempty"`
	Owner   string `json:"owner,omitempty"`
}

type history struct {
	begun time.Time
	mu    sync.Mutex
	calls []call
}

// made notes a call that do makes.
func (h *history) made(c call, do func(*call)) {
	c.Begin = int64(time.Since(h.begun))
	do(&c)
	c.End = int64(time.Since(h.begun))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// explained has the checker look at the history.
func (h *history) explained(t *testing.T) error {
	t.Helper()
	out, err := exec.Command(filepath.Join("..", "..", "scripts", "linear")).Output()
	if err != nil {
		t.Fatalf("the checker of histories cannot be built: %v", err)
	}
	var text bytes.Buffer
	for _, c := range h.calls {
		if err := json.NewEncoder(&text).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(string(bytes.TrimSpace(out)))
	cmd.Stdin = &text
	said, err := cmd.CombinedOutput()
	t.Logf("%s", bytes.TrimSpace(said))
	return err
}

// write changes a sandbox, whatever else its owner does to it meanwhile.
func write(ctx context.Context, s *postgres.Store, id string) error {
	for {
		sb, err := s.Sandbox(ctx, id)
		if err != nil {
			return err
		}
		sb.Name = fmt.Sprint(rand.Int())
		if err := s.PutSandbox(ctx, sb); !errors.As(err, new(*store.Conflict)) {
			return err
		}
	}
}

// nobodys makes paused sandboxes that any host may claim.
func nobodys(t *testing.T, url string, by *postgres.Store, n int) (ids []string) {
	t.Helper()
	gone := crashed(t, url, "gone")
	for i := range n {
		ids = append(ids, fmt.Sprint("sbx", i))
		must(t, gone.PutSandbox(t.Context(), sandbox(ids[i], bothy.StatePaused)))
	}
	if done, err := by.GiveUpHosts(t.Context(), 0, freed); err != nil || len(done) != 1 || done[0].Freed != n {
		t.Fatalf("%+v %v", done, err)
	}
	gone.Close()
	return ids
}

func freed(*store.Sandbox, string, func(string) *bothy.Snapshot) (bool, bothy.Event) {
	return true, bothy.Event{}
}

// Hosts claim the same sandboxes at the same time, ask whose they are, and change them, while
// connections are cut and one of them is given up with what it has. What they were told could
// have come about one after the other.
func TestClaimsAreLinearizable(t *testing.T) {
	url, ctx := database(t), t.Context()
	few := url + "&pool_max_conns=6"
	claims := 2000
	if text := os.Getenv(claimsVariable); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		claims = n
	}
	const each = 20 // claims of a sandbox
	dying := crashed(t, few, "dying")
	hosts := map[string]*postgres.Store{"dying": dying}
	for _, name := range []string{"one", "two", "three"} {
		hosts[name] = member(t, few, name)
	}
	for _, s := range hosts {
		defer s.Close()
	}
	// The first host given up is the one that made the sandboxes, and not of the one that is to die.
	pg.Exec(t, url, `UPDATE hosts SET until = until + interval '1 hour' WHERE id = 'dying'`)
	ids := nobodys(t, few, hosts["one"], claims/each)
	pg.Exec(t, url, `UPDATE hosts SET until = until - interval '1 hour' WHERE id = 'dying'`)

	h := &history{begun: time.Now()}
	var made, cuts atomic.Int64
	cut := func() {
		var n int64
		err := hosts["one"].Sees(context.Background(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = 'bothy' AND datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5`, &n)
		if err == nil {
			cuts.Add(n)
		}
	}
	giveUp := func() {
		var list []call
		for _, id := range ids {
			list = append(list, call{Sandbox: id, Host: "one", Op: "give_up", Lost: "dying", Begin: int64(time.Since(h.begun))})
		}
		_, err := hosts["one"].GiveUpHosts(ctx, 0, freed)
		for i := range list {
			list[i].End, list[i].Unknown = int64(time.Since(h.begun)), err != nil
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, list...)
	}
	var wg sync.WaitGroup
	for name, s := range hosts {
		for range each / len(hosts) {
			wg.Go(func() {
				for _, i := range rand.Perm(len(ids)) {
					id := ids[i]
					h.made(call{Sandbox: id, Host: name, Op: "claim"}, func(c *call) {
						ok, err := s.ClaimSandbox(ctx, id)
						c.OK, c.Unknown = ok, err != nil
					})
					switch n := made.Add(1); {
					case n == int64(claims/2):
						giveUp()
					case n%200 == 0:
						cut()
					case n%4 == 0:
						h.made(call{Sandbox: id, Host: name, Op: "owner"}, func(c *call) {
							o, err := s.SandboxHost(ctx, id)
							c.Owner, c.Unknown = o.Host, err != nil
						})
					case n%4 == 1:
						h.made(call{Sandbox: id, Host: name, Op: "write"}, func(c *call) {
							err := write(ctx, s, id)
							c.OK, c.Unknown = err == nil, err != nil && bothy.ErrorCode(err) != bothy.CodeMisdirected
						})
					}
				}
			})
		}
	}
	wg.Wait()
	unknown := 0
	for _, c := range h.calls {
		if c.Unknown {
			unknown++
		}
	}
	t.Logf("%d claims in %v, %d connections cut, %d calls whose end nobody was told", made.Load(), time.Since(h.begun).Round(time.Millisecond), cuts.Load(), unknown)
	if cuts.Load() == 0 {
		t.Error("no connection was cut")
	}
	if err := h.explained(t); err != nil {
		t.Error(err)
	}
}

// A claim that looks first and takes then is found out.
func TestABrokenClaimIsFoundOut(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one")
	defer one.Close()
	id := nobodys(t, url, one, 1)[0]
	pool, err := pgxpool.New(ctx, url)
	must(t, err)
	defer pool.Close()
	h := &history{begun: time.Now()}
	var looked, wg sync.WaitGroup
	looked.Add(2)
	for _, name := range []string{"one", "two"} {
		wg.Go(func() {
			h.made(call{Sandbox: id, Host: name, Op: "claim"}, func(c *call) {
				rows, _ := pool.Query(ctx, `SELECT host FROM sandboxes WHERE id = $1`, id)
				host, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
				looked.Done()
				looked.Wait()
				if err == nil && host == "" {
					_, err = pool.Exec(ctx, `UPDATE sandboxes SET host = $2 WHERE id = $1`, id, name)
					c.OK = err == nil
				}
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
	wg.Wait()
	if err := h.explained(t); err == nil {
		t.Errorf("two hosts have won, and the checker sees nothing in it: %+v", h.calls)
	}
}
