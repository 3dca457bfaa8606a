package testserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

// StoreVariable names the environment variable that makes every server keep its records in a
// separate PostgreSQL database, where it is "postgres".
const StoreVariable = "BOTHY_TEST_STORE"

// cluster is the PostgreSQL server of all databases.
var cluster = sync.OnceValues(func() (*pgtest.Server, error) { return pgtest.Start(false) })

var databases atomic.Int64

// newDatabase is the URL of an empty database, or "" for files.
func newDatabase() (string, error) {
	if os.Getenv(StoreVariable) != "postgres" {
		return "", nil
	}
	pg, err := cluster()
	if err != nil {
		return "", err
	}
	ctx := context.Background()
	c, err := pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	name := fmt.Sprint("bothy", databases.Add(1))
	_, err = c.Exec(ctx, "CREATE DATABASE "+name)
	return pg.URL(name), err
}

// stopDatabases ends what newDatabase has begun.
func stopDatabases() {
	if os.Getenv(StoreVariable) != "postgres" {
		return
	}
	if pg, err := cluster(); err == nil {
		pg.Stop()
	}
}
