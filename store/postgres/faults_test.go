package postgres_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

// writeTo makes of this program a writer to a database.
const writeTo = "BOTHY_TEST_WRITE_TO"

// TestKilledWriter has a process write until it is killed in the middle, and
// looks for everything that it was told is stored.
func TestKilledWriter(t *testing.T) {
	if at := os.Getenv(writeTo); at != "" {
		s := open(t, at, postgres.WithHolder("h"))
		for i := 0; ; i++ {
			b := &store.Sandbox{Sandbox: bothy.Sandbox{ID: fmt.Sprint("s", i), State: bothy.StateRunning, CreatedAt: time.Now()}}
			if err := s.PutSandbox(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			fmt.Println(b.ID)
		}
	}
	url := database(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$")
	cmd.Env = append(os.Environ(), writeTo+"="+url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var stored []string
	lines := bufio.NewScanner(out)
	for len(stored) < 50 && lines.Scan() {
		stored = append(stored, lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		stored = append(stored, lines.Text())
	}
	_ = cmd.Wait()
	if len(stored) < 50 {
		t.Fatalf("the writer stopped after %d: %v", len(stored), stored)
	}
	s := open(t, url, postgres.WithHolder("h"))
	defer s.Close()
	for _, id := range stored {
		if _, err := s.Sandbox(t.Context(), id); err != nil {
			t.Errorf("lost: %v", err)
		}
	}
}

// While the database restarts, what can be repeated waits for it; once it is unavailable, callers
// are told to come back.
func TestTheDatabaseGoesAndComesBack(t *testing.T) {
	pg := pgtest.ForTest(t)
	s := open(t, pg.Database(t))
	defer s.Close()
	ctx := t.Context()
	put := func(id string) error {
		return s.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: id, CreatedAt: time.Now()}})
	}
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		pg.End(sig)
		if err := pg.Run(); err != nil {
			t.Fatal(err)
		}
		if err := put("after " + sig.String()); err != nil {
			t.Errorf("after the restart by %v: %v", sig, err)
		}
		if _, err := s.Sandbox(ctx, "before"); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"done", "failed"} {
		if a, err := s.ReserveAnswer(ctx, "p", key, "print"); a != nil || err != nil {
			t.Fatal(a, err)
		}
	}
	pg.End(syscall.SIGINT)
	// What becomes of requests that are under way is known once the database is back.
	if err := s.StoreAnswer(ctx, "p", "done", store.Answer{Status: 201, Body: []byte("body")}); err != nil {
		t.Error(err)
	}
	if err := s.ForgetAnswer(ctx, "p", "failed"); err != nil {
		t.Error(err)
	}
	if _, err := s.ReserveAnswer(ctx, "p", "done", "print"); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("without a database: %v", err)
	}
	e := bothy.AsError(put("away"))
	if e.Code != bothy.CodeStore || e.RetryAfter == 0 || e.Hint == "" {
		t.Errorf("without a database: %+v", e)
	}
	if _, err := s.Sandbox(ctx, "before"); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("without a database: %v", err)
	}
	done := make(chan error)
	go func() { done <- put("during") }()
	if err := pg.Run(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("during the start: %v", err)
	}
	if err := put("back"); err != nil {
		t.Error(err)
	}
	if a, err := s.ReserveAnswer(ctx, "p", "done", "print"); err != nil || a == nil || string(a.Body) != "body" || a.Status != 201 {
		t.Errorf("the answer of a request that was done meanwhile: %+v, %v", a, err)
	}
	if a, err := s.ReserveAnswer(ctx, "p", "failed", "print"); err != nil || a != nil {
		t.Errorf("the key of a request that failed meanwhile: %+v, %v", a, err)
	}
}

// The ends of requests reach the database by themselves.
func TestLateAnswersAreWritten(t *testing.T) {
	pg := pgtest.ForTest(t)
	url := pg.Database(t)
	s := open(t, url, postgres.WithLease(time.Hour, 50*time.Millisecond))
	defer s.Close()
	ctx := t.Context()
	if a, err := s.ReserveAnswer(ctx, "p", "k", "print"); a != nil || err != nil {
		t.Fatal(a, err)
	}
	pg.End(syscall.SIGINT)
	if err := s.StoreAnswer(ctx, "p", "k", store.Answer{Status: 201}); err != nil {
		t.Error(err)
	}
	if err := pg.Run(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var n int
		if err := s.Sees(ctx, `SELECT count(*) FROM answers WHERE status = 201`, &n); err == nil && n == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the answer is not written")
		}
	}
}

// A follower that asks for what comes after the last it has seen misses nothing, however
// many add events.
func TestFollowersMissNoEvent(t *testing.T) {
	s := open(t, database(t))
	defer s.Close()
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				if err := s.AddEvent(context.Background(), &bothy.Event{ProjectID: fmt.Sprint("p", w%2), Time: time.Now()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen, last, ended := 0, int64(0), false
	for {
		list, err := s.Events(t.Context(), "p0", last, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			last = e.ID
		}
		seen += len(list)
		if ended {
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	if seen != writers*each/2 {
		t.Errorf("a follower saw %d events of %d", seen, writers*each/2)
	}
	if n, err := s.LastEvent(t.Context()); err != nil || n != writers*each {
		t.Errorf("the last event is %d, %v", n, err)
	}
}

// What users write may hold what PostgreSQL's text does not take.
func TestAnyText(t *testing.T) {
	s := open(t, database(t))
	defer s.Close()
	ctx := t.Context()
	want := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a", ProjectID: "p", Metadata: map[string]string{"k\x00": "v\x00", "a=b": "c"}}}
	if err := s.PutSandbox(ctx, want); err != nil {
		t.Fatal(err)
	}
	for m, found := range map[[2]string]int{{"k\x00", "v\x00"}: 1, {"a", "b=c"}: 0, {"a=b", "c"}: 1, {"k", "v"}: 0} {
		p, err := s.Sandboxes(ctx, "p", bothy.SandboxFilter{Metadata: map[string]string{m[0]: m[1]}})
		if err != nil || len(p.Items) != found {
			t.Errorf("%q: %d found, %v", m, len(p.Items), err)
		}
		if found > 0 && p.Items[0].Metadata["k\x00"] != "v\x00" {
			t.Errorf("it came back as %q", p.Items[0].Metadata)
		}
	}
	for _, id := range []string{"\x00", "\xff", "a\x00"} {
		if _, err := s.Sandbox(ctx, id); bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := s.Sandboxes(ctx, id, bothy.SandboxFilter{Name: id}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if a, err := s.ReserveAnswer(ctx, id, id, id); err != nil || a != nil {
			t.Errorf("%q: %v, %v", id, a, err)
		}
	}
	labels := `{"k\u0000":"v\u0000"}`
	row := store.UsageRow{UsageKey: store.UsageKey{Project: "p", Labels: labels}, Hour: 1, Counts: store.Counts{1}}
	if err := s.WriteUsage(ctx, store.UsageBatch{ID: "1", Rows: []store.UsageRow{row}}); err != nil {
		t.Fatal(err)
	}
	if g, err := s.QueryUsage(ctx, store.UsageQuery{To: 2, Labels: []string{"k\x00"}}); err != nil || len(g) != 1 || g[0].Labels[0] != "v\x00" {
		t.Errorf("%+v, %v", g, err)
	}
}

// However much a project has remembered, it takes no more than its share. The keys outlive
// the bodies, and the young the old.
func TestAnswersAreBounded(t *testing.T) {
	url := database(t)
	bounds := store.AnswerBounds{ProjectBytes: 1 << 20, Bytes: 3 << 20, ProjectKeys: 200}
	s := open(t, url, postgres.WithAnswerBounds(bounds))
	once := func(project, key string, body []byte) *store.Answer {
		t.Helper()
		a, err := s.ReserveAnswer(t.Context(), project, key, "print")
		if err == nil && a == nil {
			err = s.StoreAnswer(t.Context(), project, key, store.Answer{Status: 200, Body: body})
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	body := bytes.Repeat([]byte("x"), 60<<10)
	once("victim", "k", []byte("mine"))
	for i := range 400 {
		once("greedy", fmt.Sprint(i), body)
	}
	check := func() {
		t.Helper()
		var n, size int64
		if err := s.Sees(t.Context(), `SELECT count(*) FROM answers WHERE project = 'greedy'`, &n); err != nil || n > bounds.ProjectKeys {
			t.Errorf("%d keys are kept, %v", n, err)
		}
		if err := s.Sees(t.Context(), `SELECT sum(size)::bigint FROM answers WHERE project = 'greedy'`, &size); err != nil || size > bounds.ProjectBytes {
			t.Errorf("%d bytes are kept, %v", size, err)
		}
		if a := once("greedy", "399", nil); a == nil || a.Dropped || !bytes.Equal(a.Body, body) {
			t.Errorf("the last answer: %+v", a)
		}
		if a := once("greedy", "350", nil); a == nil || !a.Dropped || a.Status != 200 || len(a.Body) != 0 {
			t.Errorf("an older one: %+v, want its key alone", a)
		}
		if a := once("victim", "k", nil); a == nil || string(a.Body) != "mine" {
			t.Errorf("another project's answer: %+v", a)
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, url, postgres.WithAnswerBounds(bounds))
	defer s.Close()
	check()
	// Where all together have too much, the largest gives way.
	for i := range 5 {
		for j := range 20 {
			once(fmt.Sprint("p", i), fmt.Sprint(j), body)
		}
	}
	var size int64
	if err := s.Sees(t.Context(), `SELECT sum(size)::bigint FROM answers`, &size); err != nil || size > bounds.Bytes {
		t.Errorf("all together keep %d bytes, %v", size, err)
	}
	if a := once("victim", "k", nil); a == nil || string(a.Body) != "mine" {
		t.Errorf("the answer of the modest project: %+v", a)
	}
}

// A link is never left of a sandbox that ended, or of a token that was deleted, while it
// was being made.
func TestLinksEndWithWhatTheyAreOf(t *testing.T) {
	s := open(t, database(t))
	defer s.Close()
	ctx := t.Context()
	for i := range 30 {
		id := fmt.Sprint("s", i)
		box := &store.Sandbox{Sandbox: bothy.Sandbox{ID: id, ProjectID: "p", State: bothy.StateRunning}}
		if err := s.PutSandbox(ctx, box); err != nil {
			t.Fatal(err)
		}
		if err := s.PutToken(ctx, &store.Token{Token: bothy.Token{ID: id, ProjectID: "p"}, Hash: id}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for j := range 4 {
			wg.Go(func() {
				err := s.AddLink(context.Background(), &bothy.Link{ID: fmt.Sprint(id, "-", j), ProjectID: "p", SandboxID: id, TokenID: id}, store.LinkBounds{})
				if err != nil && bothy.ErrorCode(err) != bothy.CodeConflict {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			ended := *box
			ended.State = bothy.StateStopped
			err := s.PutSandbox(context.Background(), &ended)
			if i%2 == 0 {
				err = s.DeleteToken(context.Background(), "p", id)
			}
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if left, err := s.Links(ctx, id); err != nil || len(left) > 0 {
			t.Fatalf("%d links are left, %v", len(left), err)
		}
	}
}
