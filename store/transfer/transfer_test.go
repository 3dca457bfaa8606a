package transfer_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/store/transfer"
)

var epoch = time.Date(2026, 3, 1, 12, 30, 45, 123456789, time.UTC)

type full interface {
	store.Store
	store.Usage
	store.RowReader
}

// fill puts something of each kind into a store, with what is hard to carry.
func fill(t *testing.T, s full) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := epoch.Add(time.Hour)
	must(s.AddProject(ctx, &bothy.Project{ID: "p", Plan: "pro", CreatedAt: epoch}))
	must(s.PutToken(ctx, &store.Token{Token: bothy.Token{ID: "t", ProjectID: "p", CreatedAt: epoch}, Hash: "hash"}))
	must(s.PutToken(ctx, &store.Token{Token: bothy.Token{ID: "used", ProjectID: "p", CreatedAt: epoch, LastUsedAt: &at}, Hash: "hash 2"}))
	for i := range 1500 { // more than are carried at once
		must(s.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: fmt.Sprint("s", i), ProjectID: "p", State: bothy.StatePaused, CreatedAt: epoch}, Pooled: i%2 == 0}))
	}
	box := &store.Sandbox{
		Sandbox: bothy.Sandbox{
			ID: "box", Name: "ünïcode 'quoted'", ProjectID: "p", State: bothy.StateRunning, CreatedAt: epoch,
			Metadata: map[string]string{"b\x00": "v\x00", "a": "<&>", "": "\u2028"},
		},
		EngineState: []byte{0, 1, 0xff},
	}
	must(s.PutSandbox(ctx, box))
	must(s.PutSandbox(ctx, box)) // its second version
	must(s.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: "old", ProjectID: "p", State: bothy.StateStopped, CreatedAt: epoch, Ended: &bothy.Ended{Reason: bothy.EndTerminated, At: at}}}))
	must(s.PutSnapshot(ctx, &bothy.Snapshot{ID: "n", ProjectID: "p", SandboxID: "box", CreatedAt: epoch, SizeBytes: 1 << 40}))
	must(s.AddLink(ctx, &bothy.Link{ID: "l", ProjectID: "p", SandboxID: "box", TokenID: "t", CreatedAt: epoch, ExpiresAt: at}, store.LinkBounds{}))
	for _, code := range []bool{false, true} {
		must(s.AddLogin(ctx, &store.Login{Hash: fmt.Sprint("h ", code), ProjectID: "p", TokenID: "t", Code: code, CreatedAt: epoch, ExpiresAt: at}, store.LoginBounds{PerToken: 9, All: 9}))
	}
	must(s.PutWebhook(ctx, &store.Webhook{Webhook: bothy.Webhook{ID: "w", ProjectID: "p", CreatedAt: epoch}, SealedSecret: []byte{0, 0xff}}))
	must(s.SetWebhookState(ctx, "w", bothy.WebhookState{LastEventID: 2}))
	must(s.PutAgents(ctx, &store.AgentAttachment{AgentAttachment: bothy.AgentAttachment{ID: "a", ProjectID: "p", CreatedAt: epoch}}))
	must(s.PutAgentSession(ctx, "a", "session", []byte{0, 0xff}))
	must(s.AddPlace(ctx, store.Place{ID: "p", Location: "s3://bucket/", CreatedAt: epoch}))
	_, err := s.UsePlace(ctx, store.Place{ID: "p", Location: "s3://bucket/", CreatedAt: epoch})
	must(err)
	must(s.AddPlace(ctx, store.Place{ID: "q", Location: "s3://bucket/other/", CreatedAt: at}))
	for i := range 3 {
		must(s.AddEvent(ctx, &bothy.Event{ProjectID: "p", Time: epoch.Add(time.Duration(i) * time.Hour), Type: "x"}))
	}
	_, err = s.DeleteEventsBefore(ctx, epoch.Add(3*time.Hour)) // all, of which the last id is kept
	must(err)
	must(s.AddEvent(ctx, &bothy.Event{ProjectID: "p", Time: at, Type: "x"}))
	for _, key := range []string{"done", "dropped", "held"} {
		_, err := s.ReserveAnswer(ctx, "p", key, "print")
		must(err)
		if key != "held" {
			must(s.StoreAnswer(ctx, "p", key, store.Answer{Status: 201, Body: []byte{0, 0xff}, Header: map[string]string{"k": "v"}, Dropped: key == "dropped"}))
		}
	}
	var lines []store.AuditLine
	for i := range int64(3) {
		lines = append(lines, store.AuditLine{ID: i + 1, Time: epoch.Add(time.Duration(i) * time.Hour), ProjectID: "p", Action: "exec", Status: 200, Record: fmt.Sprint("{", i, "}"), Hash: fmt.Sprint("h", i)})
	}
	must(s.AppendAudit(ctx, lines))
	_, err = s.DeleteAuditBefore(ctx, at, 10)
	must(err)
	moment := store.Moment{Wall: epoch, Boot: "b", Uptime: time.Second}
	must(s.WriteUsage(ctx, store.UsageBatch{
		ID: "batch", Storage: &moment, Marks: []store.UsageMark{{Sandbox: "box", Started: 1, Moment: moment, CPU: 2, Egress: 3, Ingress: 4}},
		Rows: []store.UsageRow{
			{UsageKey: store.UsageKey{Project: "p", Template: "t", Sandbox: "box", Labels: `{"a\u0000":"b"}`, Root: "box"}, Hour: 490000, Counts: store.Counts{1, 2, 3, 4, 5, 6, 7}},
			{UsageKey: store.UsageKey{Project: "q"}, Hour: 491000, Counts: store.Counts{1 << 50}},
		},
	}))
	if r, ok := s.(store.Rows); ok { // what only hosts with a common store write
		at := epoch.UnixNano()
		for _, table := range store.Tables {
			switch table.Name {
			case "template_names":
				must(r.WriteRows(ctx, table, [][]any{{"", "tools", "latest", "sha256:1", int64(1), at, "{}"}, {"p", "gone", "v1", "", int64(2), at, "{}"}}))
			case "shared_trees":
				must(r.WriteRows(ctx, table, [][]any{{"templates", "1", "one", int64(5), at, at, nil, "{}"}, {"engines", "a", "two", int64(6), at, nil, at, "{}"}}))
			}
		}
	}
	must(s.PutBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: "box", Project: "p", Amount: 0.1, Warned: "life"}))
}

// rows are all rows of a store, table by table, in one order.
func rows(t *testing.T, s store.RowReader) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range store.Tables {
		err := s.ReadRows(t.Context(), table, func(row []any) error {
			all[table.Name] = append(all[table.Name], fmt.Sprintf("%#v", row))
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", table.Name, err)
		}
		slices.Sort(all[table.Name])
	}
	return all
}

func files(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "b.db"), sqlite.WithNow(func() time.Time { return epoch }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func database(t *testing.T, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.WithNow(func() time.Time { return epoch }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// carry carries all rows into the database.
func carry(t *testing.T, from store.RowReader, to *postgres.Store) {
	t.Helper()
	err := to.Load(t.Context(), func(r store.Rows) error {
		_, err := transfer.Rows(t.Context(), from, r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantEmpty(t *testing.T, s store.RowReader, want bool) {
	t.Helper()
	if empty, err := transfer.Empty(t.Context(), s); err != nil || empty != want {
		t.Fatalf("empty: %v, %v, want %v", empty, err, want)
	}
}

// Every row arrives, on the way there and on the way back, and there is one of each table.
func TestEverythingArrives(t *testing.T) {
	pg := pgtest.ForTest(t)
	first, db, last := files(t), database(t, pg.Database(t)), files(t)
	wantEmpty(t, first, true)
	wantEmpty(t, db, true)
	fill(t, first)
	want := rows(t, first)
	for _, table := range store.Tables {
		if len(want[table.Name]) == 0 {
			t.Errorf("the test has no row of %s", table.Name)
		}
	}
	carry(t, first, db)
	wantEmpty(t, db, false)
	if d := cmp.Diff(want, rows(t, db)); d != "" {
		t.Errorf("in the database (-want +got):\n%s", d)
	}
	if _, err := transfer.Rows(t.Context(), db, last); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, last, false)
	if d := cmp.Diff(want, rows(t, last)); d != "" {
		t.Errorf("back in files (-want +got):\n%s", d)
	}
	for name, s := range map[string]full{"database": db, "files": last} {
		same(t, name, first, s)
	}
}

// same asks two stores the same questions, and has both continue.
func same(t *testing.T, name string, a, b full) {
	t.Helper()
	ctx := context.Background()
	var answers [2][]any
	for i, s := range []full{a, b} {
		ask := func(v any, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			answers[i] = append(answers[i], v)
		}
		ask(s.Sandbox(ctx, "box"))
		ask(s.Sandboxes(ctx, "p", bothy.SandboxFilter{Metadata: map[string]string{"b\x00": "v\x00"}}))
		ask(s.TokenByHash(ctx, "hash 2"))
		ask(s.Webhook(ctx, "p", "w"))
		ask(s.LastEvent(ctx))
		ask(s.Places(ctx))
		ask(s.AuditEnds(ctx))
		ask(s.ReserveAnswer(ctx, "p", "done", "print"))
		ask(s.ReserveAnswer(ctx, "p", "dropped", "print"))
		ask(s.QueryUsage(ctx, store.UsageQuery{From: 480000, To: 500000, Project: true}))
		ask(s.QueryUsage(ctx, store.UsageQuery{From: 480000, To: 500000, Day: true, Sandbox: true, Labels: []string{"a\x00"}}))
		ask(s.TreeUsage(ctx, "box"))
		ask(s.Budgets(ctx))
		p, err := s.UsageProgress(ctx)
		ask(p, err)
	}
	if d := cmp.Diff(answers[0], answers[1]); d != "" {
		t.Errorf("%s answers otherwise (-want +got):\n%s", name, d)
	}
	// What is held nobody holds any more, and ids continue after the last.
	if got, err := b.ReserveAnswer(ctx, "p", "held", "print"); name == "database" && (got != nil || err != nil) {
		t.Errorf("%s: a reservation of the server before is %+v, %v", name, got, err)
	}
	if _, err := b.ReserveAnswer(ctx, "p", "new", "print"); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	e := &bothy.Event{ProjectID: "p", Time: epoch}
	if err := b.AddEvent(ctx, e); err != nil || e.ID != 5 {
		t.Errorf("%s: the next event is %d, %v", name, e.ID, err)
	}
}

// When it fails on the way, the database is as empty as before.
func TestAllOrNothing(t *testing.T) {
	pg := pgtest.ForTest(t)
	from, to := files(t), database(t, pg.Database(t))
	fill(t, from)
	err := to.Load(t.Context(), func(r store.Rows) error {
		if _, err := transfer.Rows(t.Context(), from, r); err != nil {
			return err
		}
		return fmt.Errorf("it fails at the end")
	})
	if err == nil {
		t.Fatal("it did not fail")
	}
	wantEmpty(t, to, true)
}

// derived are the tables that are made of others, or say nothing of what is kept.
var derived = []string{
	"hosts", "host_duties", "host_authority", "host_tokens", "project_starts",
	"goose_db_version", "sqlite_sequence", "schema_versions", "server_lease", "usage_keys",
	"usage_days", "usage_months", "usage_projects", "usage_hour_totals", "usage_day_totals", "usage_month_totals",
}

// A table that is added to a store is carried, or is said to be derived.
func TestEveryTableIsCarried(t *testing.T) {
	carried := map[string]bool{}
	for _, table := range store.Tables {
		carried[table.Name] = true
	}
	check := func(name string) {
		if !carried[name] && !slices.Contains(derived, name) {
			t.Errorf("the table %s is not in store.Tables", name)
		}
	}
	path := filepath.Join(t.TempDir(), "b.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, file := range []string{path, strings.TrimSuffix(path, ".db") + "-answers.db"} {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		names, err := db.Query(`SELECT name FROM sqlite_master WHERE type = 'table'`)
		if err != nil {
			t.Fatal(err)
		}
		for names.Next() {
			var name string
			if err := names.Scan(&name); err != nil {
				t.Fatal(err)
			}
			check(name)
		}
		names.Close()
		db.Close()
	}
	url := pgtest.ForTest(t).Database(t)
	database(t, url)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	names, err := c.Query(t.Context(), `SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil || len(all) < len(store.Tables) {
		t.Fatalf("the database has the tables %v, %v", all, err)
	}
	for _, name := range all {
		check(name)
	}
}
