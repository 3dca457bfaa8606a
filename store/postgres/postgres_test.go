package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

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
