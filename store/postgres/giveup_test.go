package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
)

// A host with thousands of sandboxes is given up in a few round trips, whatever their number.
func TestAHostWithManySandboxesIsGivenUp(t *testing.T) {
	const each = 1000 // paused ones, and as many that ran
	url, ctx := database(t), t.Context()
	c := &cutter{}
	dead, two := crashed(t, url, "dead"), member(t, c.listen(t, url), "two")
	defer dead.Close()
	defer two.Close()
	ran := sandbox("sbxr0", bothy.StateRunning)
	ran.HeadSnapshotID, ran.Checkpoints = "snpr0", []string{"snpr0"}
	for _, sb := range []*store.Sandbox{sandbox("sbxp0", bothy.StatePaused), ran} {
		must(t, dead.PutSandbox(ctx, sb))
		must(t, dead.PutSnapshot(ctx, &bothy.Snapshot{ID: "snp" + sb.ID[3:], SandboxID: sb.ID, ProjectID: "p", CreatedAt: time.Now().UTC()}))
		must(t, dead.PutToken(ctx, &store.Token{Token: bothy.Token{ID: "t" + sb.ID, ProjectID: "p"}, Hash: sb.ID}))
		must(t, dead.AddLink(ctx, &bothy.Link{ID: "lnk" + sb.ID, ProjectID: "p", SandboxID: sb.ID, TokenID: "t" + sb.ID}, store.LinkBounds{}))
	}
	for table, columns := range map[string]string{
		"sandboxes": "project, name, state, created_at, ended_at, pooled, metadata, host, host_epoch",
		"snapshots": "project, name, created_at, bytes, host, sandbox_id",
	} {
		selected := columns
		if table == "snapshots" {
			selected = "project, name, created_at, bytes, host, left(sandbox_id, -1) || i"
		}
		var n int
		if err := dead.Sees(ctx, fmt.Sprintf(`WITH added AS (INSERT INTO %s (id, record, %s)
			SELECT left(id, -1) || i, replace(replace(record, 'p0"', 'p' || i || '"'), 'r0"', 'r' || i || '"'), %s FROM %[1]s, generate_series(1, %[4]d) i RETURNING 1)
			SELECT count(*) FROM added`, table, columns, selected, each-1), &n); err != nil || n != 2*(each-1) {
			t.Fatal(n, err)
		}
	}
	fate := func(sb *store.Sandbox, host string, snapshot func(string) *bothy.Snapshot) (bool, bothy.Event) {
		if n := snapshot("snp" + sb.ID[3:]); n == nil || n.SandboxID != sb.ID {
			t.Errorf("the snapshot of %s: %+v", sb.ID, n)
		}
		if sb.State == bothy.StatePaused {
			return sb.ID != "sbxp1", bothy.Event{}
		}
		if sb.ID == "sbxr1" {
			sb.State = bothy.StatePaused
			return true, bothy.Event{}
		}
		sb.State, sb.Ended = bothy.StateFailed, &bothy.Ended{Reason: bothy.EndHostLost, At: time.Now().UTC()}
		return true, bothy.Event{Type: "sandbox.ended", SandboxID: sb.ID, ProjectID: "p", Time: time.Now().UTC()}
	}
	before := c.asked.Load()
	done, err := two.GiveUpHosts(ctx, 0, fate)
	if err != nil || len(done) != 1 || done[0].Freed != each || done[0].Kept != 1 || done[0].Ended != each-1 || done[0].Paused != 1 {
		t.Fatalf("%+v %v", done, err)
	}
	if asked := c.asked.Load() - before; asked > 200 {
		t.Errorf("%d sandboxes took %d round trips", 2*each, asked)
	}
	check(t, two, map[string]int{
		`sandboxes WHERE host_epoch = 0 AND record::jsonb ->> 'state' = state`: 2 * each,
		`sandboxes WHERE host = 'dead'`:                                        1,
		`sandboxes WHERE state = 'failed' AND ended_at IS NOT NULL`:            each - 1,
		`snapshots WHERE host = 'dead'`:                                        1,
		`snapshots`:                                                            each + 1,
		`links`:                                                                1, // the other was of one that has ended
		`events`:                                                               each - 1,
		`hosts WHERE dead_at IS NOT NULL`:                                      1,
	})
}

// check counts rows.
func check(t *testing.T, s *postgres.Store, want map[string]int) {
	t.Helper()
	for from, n := range want {
		var got int
		if err := s.Sees(t.Context(), "SELECT count(*) FROM "+from, &got); err != nil || got != n {
			t.Errorf("%s: %d, not %d; %v", from, got, n, err)
		}
	}
}
