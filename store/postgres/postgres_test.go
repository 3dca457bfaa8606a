package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/store/storetest"
)

// pg is one server for all tests, or nil where PostgreSQL is not installed.
var pg *pgtest.Server

func TestMain(m *testing.M) {
	if pgtest.Missing() == "" && os.Getenv(writeTo) == "" {
		var err error
		if pg, err = pgtest.Start(false); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if pg != nil {
		pg.Stop()
	}
	os.Exit(code)
}

// database is an empty database.
func database(t testing.TB) string {
	t.Helper()
	if pg == nil {
		t.Skip(pgtest.Missing())
	}
	return pg.Database(t)
}

func open(t testing.TB, url string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) storetest.Opener {
		url := database(t)
		return func() store.Store { return open(t, url, postgres.WithNow(now)) }
	})
}

// Who waits for a database that cannot be reached is told why, once and in one line: also if the
// server is stopped before it has waited long enough.
func TestAnUnreachableDatabaseIsDescribedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close()) // nothing listens there
	ctx, cancel := context.WithCancel(t.Context())
	logged := &strings.Builder{}
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) { defer cancel(); return logged.Write(b) }), nil))
	_, err = postgres.Open(ctx, "postgres://bothy@"+l.Addr().String()+"/bothy", postgres.WithLog(log))
	for what, text := range map[string]string{"the log": logged.String(), "the error": bothy.AsError(err).Detail} {
		if strings.Count(text, "connection refused") != 1 || strings.Contains(text, "context canceled") || strings.Contains(strings.TrimSpace(text), "\n") {
			t.Errorf("%s: %s", what, text)
		}
	}
	if bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("%v", err)
	}
}

// writer is a function as an io.Writer.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
