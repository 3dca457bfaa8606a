package postgres_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/store/transfer"
)

// The last host of a cluster takes its records back to files, once no other host has anything that it
// lacks. The database stays the cluster's.
func TestTheLastHostTakesItsRecordsBack(t *testing.T) {
	url, ctx := database(t), t.Context()
	one := member(t, url, "one")
	must(t, one.PutSandbox(ctx, sandbox("sbx1", bothy.StatePaused)))
	must(t, one.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp1", SandboxID: "sbx1", ProjectID: "p", CreatedAt: time.Now().UTC(), Durable: bothy.DurableHost}))
	two := member(t, url, "two", postgres.WithLease(time.Hour, time.Hour))
	must(t, two.PutSandbox(ctx, sandbox("sbx2", bothy.StatePaused)))
	must(t, two.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp2", SandboxID: "sbx2", ProjectID: "p", CreatedAt: time.Now().UTC(), Durable: bothy.DurableHost}))
	must(t, one.Close())
	alone := []postgres.Option{postgres.WithHome("home of one"), postgres.WithHolder("holder of one")}
	back := append(alone, postgres.WithClusterLeft())
	refused(t, url, bothy.CodeConflict, "the host two of the cluster uses the database", back...)
	must(t, two.Close())
	expire(t, url)
	refused(t, url, bothy.CodeConflict, "the host two of the cluster owns 1 sandboxes", back...)
	two = member(t, url, "two")
	must(t, two.PutSandbox(ctx, current(t, two, sandbox("sbx2", bothy.StateStopped))))
	must(t, two.Close())
	expire(t, url)
	refused(t, url, bothy.CodeConflict, "1 snapshots are only on the disk of the host two", back...)
	two = member(t, url, "two")
	must(t, two.DeleteSnapshot(ctx, "snp2"))
	must(t, two.Close())
	expire(t, url)
	refused(t, url, bothy.CodeConflict, "cluster.name is not set", alone...)

	db := open(t, url, back...)
	files, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := transfer.Rows(ctx, db, files); err != nil {
		t.Fatal(err)
	}
	must(t, db.Close())
	if sb, err := files.Sandbox(ctx, "sbx1"); err != nil || sb.State != bothy.StatePaused {
		t.Errorf("in the files: %+v %v", sb, err)
	}
	again := member(t, url, "one")
	defer again.Close()
	if own, err := again.OwnSandboxesInState(ctx, bothy.StatePaused); err != nil || len(own) != 1 {
		t.Errorf("the cluster's host has %v %v", own, err)
	}
}

// expire lets the leases of all hosts run out.
func expire(t *testing.T, url string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), `UPDATE hosts SET until = clock_timestamp() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
}
