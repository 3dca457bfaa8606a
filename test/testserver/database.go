package testserver

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

// StoreVariable names the environment variable that makes every server keep its records in a
// separate PostgreSQL database, where it is "postgres".
const StoreVariable = "BOTHY_TEST_STORE"

// cluster is the PostgreSQL server of the databases of all tests of a package, but of those that stop theirs.
var cluster = sync.OnceValues(func() (*pgtest.Server, error) {
	pg, err := pgtest.Start(false)
	clusterStarted = err == nil
	return pg, err
})

var clusterStarted bool // once cluster has returned

// Postgres returns the PostgreSQL server that the tests of a package share. It must not be stopped.
func Postgres(t testing.TB) *pgtest.Server {
	t.Helper()
	if why := pgtest.Missing(); why != "" {
		t.Skip(why)
	}
	pg, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	return pg
}

// newDatabase is the URL of an empty database, or "" for files.
func newDatabase() (string, error) {
	if os.Getenv(StoreVariable) != "postgres" {
		return "", nil
	}
	pg, err := cluster()
	if err != nil {
		return "", err
	}
	return pg.NewDatabase(context.Background())
}

// stopDatabases ends the shared server, once the tests are over.
func stopDatabases() {
	if clusterStarted {
		pg, _ := cluster()
		pg.Stop()
	}
}
