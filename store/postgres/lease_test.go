package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
)

func refused(t *testing.T, url string, want bothy.Code, words string, opts ...postgres.Option) {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, opts...)
	if err == nil {
		s.Close()
		t.Fatal("the database was opened")
	}
	if bothy.ErrorCode(err) != want || !strings.Contains(err.Error(), words) || bothy.AsError(err).Hint == "" {
		t.Errorf("%v is no %s about %q with a hint", err, want, words)
	}
}

func TestOneServerHasTheDatabase(t *testing.T) {
	url := database(t)
	s := open(t, url)
	refused(t, url, bothy.CodeConflict, "another server uses this database: process ")
	if err := s.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, url) // at once, since the other let go
	defer next.Close()
	if _, err := next.Sandbox(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A server that was killed is known by its name when it comes back.
func TestTheSameServerComesBack(t *testing.T) {
	url := database(t)
	killed := open(t, url, postgres.WithHolder("home-1"), postgres.WithLease(time.Hour, time.Hour))
	defer killed.Close()
	refused(t, url, bothy.CodeConflict, "another server uses this database", postgres.WithHolder("home-2"))
	back := open(t, url, postgres.WithHolder("home-1"))
	defer back.Close()
	if err := back.AddEvent(t.Context(), &bothy.Event{ProjectID: "p", Time: time.Now()}); err != nil {
		t.Error(err)
	}
}

// A server that lost the database changes nothing, whichever way it tries, and says so.
func TestWhoLostTheDatabaseChangesNothing(t *testing.T) {
	url := database(t)
	lost := open(t, url, postgres.WithHolder("h"), postgres.WithLease(time.Hour, time.Hour))
	defer lost.Close()
	if err := lost.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a", Name: "before"}}); err != nil {
		t.Fatal(err)
	}
	if a, err := lost.ReserveAnswer(t.Context(), "p", "k", "print"); a != nil || err != nil {
		t.Fatal(a, err)
	}
	has := open(t, url, postgres.WithHolder("h"))
	defer has.Close()
	ctx := t.Context()
	if err := lost.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a", Name: "after"}}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a sandbox was stored: %v", err)
	}
	select {
	case <-lost.Lost():
	default:
		t.Error("it does not know that it has lost the database")
	}
	if err := lost.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: "b"}}); !errors.Is(err, store.ErrLost) || bothy.AsError(err).RetryAfter == 0 {
		t.Errorf("what it says: %v", err)
	}
	if err := lost.DeleteToken(ctx, "p", "t"); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a token was deleted: %v", err)
	}
	if err := lost.AddEvent(ctx, &bothy.Event{ProjectID: "p"}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("an event was added: %v", err)
	}
	if b, err := has.Sandbox(ctx, "a"); err != nil || b.Name != "before" {
		t.Errorf("the sandbox is %+v, %v", b, err)
	}
	// The reservation of the other is void, and it can no longer be fulfilled.
	if a, err := has.ReserveAnswer(ctx, "p", "k", "print"); a != nil || err != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

// A renewal that finds another server ends the store as well.
func TestARenewalFindsTheOther(t *testing.T) {
	url := database(t)
	lost := open(t, url, postgres.WithHolder("h"), postgres.WithLease(time.Hour, 10*time.Millisecond))
	defer lost.Close()
	has := open(t, url, postgres.WithHolder("h"))
	defer has.Close()
	select {
	case <-lost.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not find out")
	}
}

// Who cannot renew its lease in time continues, as long as nobody takes the database.
func TestALeaseThatRanOutIsFree(t *testing.T) {
	url := database(t)
	slow := open(t, url, postgres.WithLease(time.Millisecond, time.Hour))
	defer slow.Close()
	if err := slow.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a"}}); err != nil {
		t.Error(err)
	}
	next := open(t, url)
	defer next.Close()
	if err := slow.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "b"}}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Error("the one before may still change something:", err)
	}
}

// To take the database over waits for a change that has begun, and no other begins.
func TestTakingOverWaitsForChanges(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.WithHolder("h"))
	defer s.Close()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	tx, err := c.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT server_holds(epoch) FROM server_lease`)
	}
	if err == nil {
		_, err = tx.Exec(t.Context(), `INSERT INTO projects VALUES ('late', '', 0)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan *postgres.Store)
	go func() {
		next, err := postgres.Open(context.Background(), url, postgres.WithHolder("h"))
		if err != nil {
			t.Error(err)
		}
		opened <- next
	}()
	for waits := false; !waits; {
		if err := s.Sees(t.Context(), `SELECT count(*) > 0 FROM pg_locks WHERE NOT granted`, &waits); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-opened:
		t.Error("the database was taken over in the midst of a change")
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := <-opened
	defer next.Close()
	if _, err := next.Project(t.Context(), "late"); err != nil {
		t.Error(err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	url := database(t)
	for _, bad := range []string{"postgres://u:geheim@h:port/db", "postgres://u:geheim@%zz/"} {
		_, err := postgres.Open(t.Context(), bad)
		if bothy.ErrorCode(err) != bothy.CodeInvalid || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	_, err := postgres.Open(t.Context(), "postgres://u:geheim@127.0.0.1:1/db", postgres.WithPatience(time.Millisecond))
	if bothy.ErrorCode(err) != bothy.CodeStore || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
	_, err = postgres.Open(t.Context(), strings.Replace(url, "postgres:///t", "postgres:///none", 1))
	if e := bothy.AsError(err); e.Code != bothy.CodeStore || !strings.Contains(e.Detail, "does not exist") {
		t.Errorf("%v", err)
	}
	s := open(t, url)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, url, `INSERT INTO schema_versions (version_id, is_applied) VALUES (999, true)`)
	if _, err = postgres.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), "a newer server") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Open(ctx, url); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// An older program that is started on the database while the lease of the server is over,
// but nobody has taken it, does not take it away and then find out that it cannot use it.
func TestAnOlderServerTakesNothingAway(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.WithHolder("newer"), postgres.WithLease(0, time.Hour))
	defer s.Close()
	pg.Exec(t, url, `INSERT INTO schema_versions (version_id, is_applied) VALUES (999, true)`)
	refused(t, url, bothy.CodeUnsupported, "a newer server", postgres.WithHolder("older"))
	refused(t, url, bothy.CodeUnsupported, "a newer server", postgres.WithHolder("newer"))
	if _, err := postgres.Check(t.Context(), url); bothy.ErrorCode(err) != bothy.CodeUnsupported || bothy.AsError(err).Hint == "" {
		t.Errorf("the check says %v", err)
	}
	if err := s.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a"}}); err != nil {
		t.Errorf("the server that had the database: %v", err)
	}
	pg.Exec(t, url, `DELETE FROM schema_versions WHERE version_id = 999`)
	next := open(t, url, postgres.WithHolder("older"))
	defer next.Close()
	if err := s.PutSandbox(t.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a"}}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("once it was taken: %v", err)
	}
}

// The rows of one server's state are nothing to a server that has another.
func TestADatabaseBelongsToOneHome(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.WithHome("one"))
	s.Close()
	refused(t, url, bothy.CodeConflict, "belongs to the state of another server, one", postgres.WithHome("two"))
	again := open(t, url, postgres.WithHome("one"))
	again.Close()
}

func TestCheckSaysWhoHasTheDatabase(t *testing.T) {
	url := database(t)
	i, err := postgres.Check(t.Context(), url)
	if err != nil || i.Version == "" || i.Server != "" || i.RoundTrip <= 0 {
		t.Errorf("of an empty database: %+v, %v", i, err)
	}
	s := open(t, url)
	if i, err = postgres.Check(t.Context(), url); err != nil || !strings.HasPrefix(i.Server, "process ") {
		t.Errorf("of one that is used: %+v, %v", i, err)
	}
	s.Close()
	if i, err = postgres.Check(t.Context(), url); err != nil || i.Server != "" {
		t.Errorf("of one that was used: %+v, %v", i, err)
	}
}
