package audit_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to change what was written

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/audit"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

type fixture struct {
	*testing.T
	*audit.Log
	store *sqlite.Store
	path  string
	o     audit.Options
	now   atomic.Int64 // ns
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, o audit.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, path: filepath.Join(t.TempDir(), "b.db"), o: o}
	f.now.Store(epoch.UnixNano())
	f.o.Now = func() time.Time { return time.Unix(0, f.now.Load()) }
	f.o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) start() {
	f.Helper()
	var err error
	if f.store, err = sqlite.Open(f.Context(), f.path); err != nil {
		f.Fatal(err)
	}
	if f.Log, err = audit.Open(f.Context(), f.store, f.o); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) stop() {
	f.Helper()
	if err := errors.Join(f.Log.Close(), f.store.Close()); err != nil {
		f.Error(err)
	}
}

func (f *fixture) did(action string, change ...func(*bothy.AuditRecord)) {
	r := bothy.AuditRecord{
		Time: f.o.Now(), ProjectID: "default", TokenID: "tok_a", TokenName: "anna", Action: action, SandboxID: "sbx1",
		Remote: "192.0.2.1", RequestID: "req_1", Status: 201, DurationMS: 3,
	}
	for _, c := range change {
		c(&r)
	}
	f.Record(r)
}

func as(project string, scopes ...bothy.Scope) context.Context {
	return bothy.WithCaller(context.Background(), &bothy.Caller{ProjectID: project, TokenID: "tok_x", Scopes: scopes})
}

var operator = as(bothy.DefaultProject, bothy.ScopeAdmin)

func (f *fixture) list(ctx context.Context, filter bothy.AuditFilter) []bothy.AuditRecord {
	f.Helper()
	p, err := f.Audit(ctx, filter)
	if err != nil {
		f.Fatal(err)
	}
	return p.Items
}

func actions(list []bothy.AuditRecord) string {
	var names []string
	for _, r := range list {
		names = append(names, r.Action)
	}
	return strings.Join(names, " ")
}

func (f *fixture) check(ok bool) *bothy.AuditCheck {
	f.Helper()
	c, err := f.CheckAudit(operator, 0, "")
	if err != nil {
		f.Fatal(err)
	}
	if c.OK != ok {
		f.Fatalf("the chain is checked as %+v", c)
	}
	return c
}

// damage changes the database behind the server's back.
func (f *fixture) damage(query string, args ...any) {
	f.Helper()
	db, err := sql.Open("sqlite", f.path)
	if err != nil {
		f.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query, args...); err != nil {
		f.Fatal(err)
	}
}

func TestWhoDidWhatIsFound(t *testing.T) {
	f := open(t, audit.Options{})
	f.did("create-sandbox")
	f.did("exec", func(r *bothy.AuditRecord) { r.Command, r.TokenID, r.Time = "make", "tok_b", epoch.Add(time.Hour) })
	f.did("delete-token", func(r *bothy.AuditRecord) { r.ProjectID, r.SandboxID, r.Object = "other", "", "tok_z" })
	f.did("get-sandbox", func(r *bothy.AuditRecord) { r.Status, r.Code = 404, bothy.CodeSandboxNotFound })
	for _, test := range []struct {
		filter bothy.AuditFilter
		want   string
	}{
		{bothy.AuditFilter{}, "get-sandbox delete-token exec create-sandbox"},
		{bothy.AuditFilter{Oldest: true}, "create-sandbox exec delete-token get-sandbox"},
		{bothy.AuditFilter{Action: "exec"}, "exec"},
		{bothy.AuditFilter{TokenID: "tok_b"}, "exec"},
		{bothy.AuditFilter{ProjectID: "other"}, "delete-token"},
		{bothy.AuditFilter{SandboxID: "sbx1"}, "get-sandbox exec create-sandbox"},
		{bothy.AuditFilter{Since: epoch.Add(time.Minute)}, "exec"},
		{bothy.AuditFilter{Until: epoch.Add(time.Minute), SandboxID: "sbx1"}, "get-sandbox create-sandbox"},
		{bothy.AuditFilter{Refused: true}, "get-sandbox"},
		{bothy.AuditFilter{Cursor: 3}, "exec create-sandbox"},
		{bothy.AuditFilter{Cursor: 3, Oldest: true}, "get-sandbox"},
	} {
		if got := actions(f.list(operator, test.filter)); got != test.want {
			t.Errorf("%+v finds %q, want %q", test.filter, got, test.want)
		}
	}
	p, err := f.Audit(operator, bothy.AuditFilter{Limit: 2})
	if err != nil || len(p.Items) != 2 || p.NextCursor != "3" {
		t.Errorf("the first page is %+v, %v", p, err)
	}
	if r := f.list(operator, bothy.AuditFilter{Action: "exec"})[0]; r.Command != "make" || r.ID != 2 || !r.Time.Equal(epoch.Add(time.Hour)) || r.Hash == "" {
		t.Errorf("the record is %+v", r)
	}
}

func TestOthersSeeTheirOwn(t *testing.T) {
	f := open(t, audit.Options{})
	f.did("create-sandbox")
	f.did("exec", func(r *bothy.AuditRecord) { r.ProjectID = "other" })
	f.did("request", func(r *bothy.AuditRecord) { r.ProjectID, r.Status = "", 401 })
	other := as("other", bothy.ScopeAdmin)
	if got := actions(f.list(other, bothy.AuditFilter{})); got != "exec" {
		t.Errorf("another project sees %q", got)
	}
	if _, err := f.Audit(other, bothy.AuditFilter{ProjectID: "default"}); bothy.ErrorCode(err) != bothy.CodeProjectNotFound {
		t.Errorf("another project asks for the default one: %v", err)
	}
	if _, err := f.CheckAudit(other, 0, ""); bothy.ErrorCode(err) != bothy.CodeForbidden {
		t.Errorf("another project checks the chain: %v", err)
	}
	for ctx, want := range map[context.Context]bothy.Code{
		as("default", bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite): bothy.CodeForbidden,
		context.Background(): bothy.CodeUnauthenticated,
	} {
		if _, err := f.Audit(ctx, bothy.AuditFilter{}); bothy.ErrorCode(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := f.CheckAudit(ctx, 0, ""); bothy.ErrorCode(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Changes made behind the server's back are found and located.
func TestChangesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		query  string
		broken int64
	}{
		"a word changed":        {`UPDATE audit SET record = replace(record, 'anna', 'otto') WHERE id = 3`, 3},
		"a record deleted":      {`DELETE FROM audit WHERE id = 3`, 3},
		"the first deleted":     {`DELETE FROM audit WHERE id = 1`, 1},
		"the last deleted":      {`DELETE FROM audit WHERE id = 5`, 5},
		"two exchanged":         {`UPDATE audit SET id = CASE id WHEN 2 THEN -3 ELSE -2 END WHERE id IN (2, 3); UPDATE audit SET id = -id WHERE id < 0`, 2},
		"the end is another's":  {`UPDATE audit_ends SET last_hash = 'x'`, 5},
		"all but one deleted":   {`DELETE FROM audit WHERE id > 1`, 2},
		"a record written over": {`UPDATE audit SET record = (SELECT record FROM audit WHERE id = 1), hash = (SELECT hash FROM audit WHERE id = 1) WHERE id = 2`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, audit.Options{})
			for range 5 {
				f.did("exec")
			}
			if c := f.check(true); c.Records != 5 || c.First != 1 || c.Last != 5 {
				t.Fatalf("unchanged: %+v", c)
			}
			f.damage(test.query)
			if c := f.check(false); c.Broken != test.broken || c.Detail == "" {
				t.Errorf("found %+v, want %d", c, test.broken)
			}
		})
	}
}

// A saved head reveals that the whole chain was rewritten.
func TestAKeptHeadProvesThePast(t *testing.T) {
	f := open(t, audit.Options{})
	f.did("exec")
	f.did("exec")
	kept := f.check(true)
	f.did("exec")
	if c, err := f.CheckAudit(operator, kept.Last, kept.Head); err != nil || !c.OK || c.Last != 3 {
		t.Errorf("an honest chain: %+v, %v", c, err)
	}
	if c, err := f.CheckAudit(operator, kept.Last, strings.Repeat("0", 64)); err != nil || c.OK || c.Broken != 2 {
		t.Errorf("another head: %+v, %v", c, err)
	}
	if c, err := f.CheckAudit(operator, 9, kept.Head); err != nil || c.OK || c.Broken != 4 {
		t.Errorf("a chain that was longer: %+v, %v", c, err)
	}
}

func TestAnExportIsCheckedWithoutAServer(t *testing.T) {
	f := open(t, audit.Options{})
	for i := range 4 {
		f.did("exec", func(r *bothy.AuditRecord) { r.Command = fmt.Sprintf("echo <%d> & \u00e4", i) })
	}
	export := func(list []bothy.AuditRecord) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		for _, r := range list {
			if err := e.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	all := f.list(operator, bothy.AuditFilter{Oldest: true})
	if c, err := audit.CheckExport(strings.NewReader(export(all))); err != nil || !c.OK || c.Records != 4 || c.Head != all[3].Hash {
		t.Errorf("all of it: %+v, %v", c, err)
	}
	if c, err := audit.CheckExport(strings.NewReader(export(all[1:]))); err != nil || !c.OK || c.Records != 3 {
		t.Errorf("from the second on: %+v, %v", c, err)
	}
	if c, err := audit.CheckExport(strings.NewReader(strings.Replace(export(all), "<2>", "<7>", 1))); err != nil || c.OK || c.Broken != 3 {
		t.Errorf("with a change: %+v, %v", c, err)
	}
	if c, err := audit.CheckExport(strings.NewReader(export(append(all[:1:1], all[2:]...)))); err != nil || c.OK || c.Broken != 2 {
		t.Errorf("with one left out: %+v, %v", c, err)
	}
	for _, text := range []string{"", "no", "[1]"} {
		if _, err := audit.CheckExport(strings.NewReader(text)); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Everything recorded before Close is available to the next server, whose records continue the chain.
func TestTheNextServerContinuesTheChain(t *testing.T) {
	f := open(t, audit.Options{})
	for range 600 {
		f.did("exec")
	}
	f.stop()
	f.start()
	f.did("create-sandbox")
	if c := f.check(true); c.Records != 601 {
		t.Errorf("%+v", c)
	}
}

func TestOldRecordsAreForgotten(t *testing.T) {
	f := open(t, audit.Options{})
	for i := range 6 {
		f.did("exec", func(r *bothy.AuditRecord) { r.Time = epoch.Add(time.Duration(i) * 24 * time.Hour) })
	}
	f.check(true)
	f.stop()
	f.o.Keep = 48 * time.Hour
	f.now.Store(epoch.Add(5*24*time.Hour + time.Minute).UnixNano())
	f.start()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if n := len(f.list(operator, bothy.AuditFilter{})); n == 2 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%d records are left, want 2", n)
		}
	}
	if c := f.check(true); c.First != 5 || c.Records != 2 {
		t.Errorf("%+v", c)
	}
	if _, err := f.CheckAudit(operator, 4, "x"); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a head that is not kept any more: %v", err)
	}
	f.damage(`DELETE FROM audit WHERE id = 5`)
	f.check(false)
}

// Guessing keys does not fill the disk, but is counted.
func TestRefusedAttemptsAreCounted(t *testing.T) {
	f := open(t, audit.Options{})
	wrong := func(n int, remote string) {
		for range n {
			f.did("request", func(r *bothy.AuditRecord) {
				r.Status, r.Code, r.Remote, r.ProjectID, r.TokenID = 401, bothy.CodeUnauthenticated, remote, "", ""
			})
		}
	}
	wrong(5000, "192.0.2.1")
	wrong(3, "192.0.2.2")
	if got := len(f.list(operator, bothy.AuditFilter{})); got != 13 {
		t.Errorf("%d records, want 10 of the one and 3 of the other", got)
	}
	f.now.Add(int64(2 * time.Minute))
	wrong(1, "192.0.2.1")
	f.stop()
	f.start()
	total, counted := 0, 0
	for _, r := range f.list(operator, bothy.AuditFilter{Refused: true}) {
		total += max(1, r.Count)
		if r.Count > 0 {
			counted++
		}
	}
	if total != 5004 || counted != 1 {
		t.Errorf("%d attempts in the records, %d of which count: want 5004 and 1", total, counted)
	}
	// The number of addresses is limited as well, and none is lost.
	for i := range 3000 {
		wrong(1, fmt.Sprintf("198.51.%d.%d", i/256, i%256))
	}
	f.stop()
	f.start()
	if c := f.check(true); c.Records > 1100 {
		t.Errorf("%d records of attempts from 3000 addresses", c.Records)
	}
	total = 0
	for filter := (bothy.AuditFilter{Limit: 1000}); ; {
		p, err := f.Audit(operator, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Items {
			total += max(1, r.Count)
		}
		if p.NextCursor == "" {
			break
		}
		filter.Cursor = p.Items[len(p.Items)-1].ID
	}
	if total != 8004 {
		t.Errorf("%d attempts in the records, want 8004", total)
	}
}

func TestKeysAreNotKept(t *testing.T) {
	f := open(t, audit.Options{})
	for _, secret := range []string{
		"bothy_" + strings.Repeat("a1", 32), "e2b_" + strings.Repeat("0f", 20), "sk-ant-api03-abcdefghijklmnop", "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
		"AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
	} {
		for _, command := range []string{"curl -H 'Authorization: Bearer %s' x", "KEY=%s make", "echo %s", `{"api_key": "%s"}`} {
			f.did("exec", func(r *bothy.AuditRecord) { r.Command = fmt.Sprintf(command, secret); r.Object = "/tmp/" + secret })
			r := f.list(operator, bothy.AuditFilter{Limit: 1})[0]
			if strings.Contains(r.Command, secret) || strings.Contains(r.Object, secret) || !strings.Contains(r.Command, "[redacted]") {
				t.Errorf("kept %q and %q", r.Command, r.Object)
			}
		}
	}
	for command, want := range map[string]string{
		"psql postgres://me:hunter22@db/x":   "psql postgres://me:[redacted]@db/x",
		"mysql --password=hunter22 x":        "mysql --password=[redacted] x",
		"python -c 'print(sum(range(10)))'":  "python -c 'print(sum(range(10)))'",
		"TOKEN=$(cat /run/token) make token": "TOKEN=$(cat /run/token) make token",
	} {
		f.did("exec", func(r *bothy.AuditRecord) { r.Command = command })
		if r := f.list(operator, bothy.AuditFilter{Limit: 1})[0]; r.Command != want {
			t.Errorf("%q is kept as %q", command, r.Command)
		}
	}
	f.did("exec", func(r *bothy.AuditRecord) { r.Command = strings.Repeat("\u00e4", 1<<20) + "\xff" })
	if r := f.list(operator, bothy.AuditFilter{Limit: 1})[0]; len(r.Command) > 4096 || !strings.HasSuffix(r.Command, "…") {
		t.Errorf("a long command is kept with %d bytes", len(r.Command))
	}
	f.stop()
	f.o.NoCommands = true
	f.start()
	f.did("exec", func(r *bothy.AuditRecord) { r.Command = "make" })
	if r := f.list(operator, bothy.AuditFilter{Limit: 1})[0]; r.Command != "" {
		t.Errorf("a command is kept although it should not be: %q", r.Command)
	}
}

// sick is a store that can be made to fail.
type sick struct {
	*sqlite.Store
	broken atomic.Bool
}

func (s *sick) AppendAudit(ctx context.Context, lines []store.AuditLine) error {
	if s.broken.Load() {
		return errors.New("no space left on device")
	}
	return s.Store.AppendAudit(ctx, lines)
}

// While the disk is full nothing is lost, further requests are refused, and none hangs; afterwards
// everything continues.
func TestAFullDiskLosesNothing(t *testing.T) {
	f := open(t, audit.Options{})
	if err := f.Log.Close(); err != nil {
		t.Fatal(err)
	}
	s := &sick{Store: f.store}
	log, err := audit.Open(t.Context(), s, f.o)
	if err != nil {
		t.Fatal(err)
	}
	s.broken.Store(true)
	n := 0
	record := func() {
		log.Record(bothy.AuditRecord{Time: epoch, Action: "exec", Status: 200})
		n++
	}
	record()
	until(t, "the queue is full and failing", func() bool {
		if log.Admit() != nil {
			return true
		}
		for range 500 {
			record()
		}
		return false
	})
	if log.Health() == nil {
		t.Error("it calls itself healthy")
	}
	if err := log.Admit(); bothy.ErrorCode(err) != bothy.CodeCapacity || bothy.AsError(err).RetryAfter == 0 || bothy.AsError(err).Hint == "" {
		t.Errorf("what comes next is refused with %v", err)
	}
	record() // admitted earlier
	s.broken.Store(false)
	until(t, "things go on", func() bool { return log.Admit() == nil })
	record()
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	ends, err := f.store.AuditEnds(t.Context())
	if err != nil || ends.LastID != int64(n) {
		t.Errorf("%d records are stored, want %d (%v)", ends.LastID, n, err)
	}
	f.Log, err = audit.Open(t.Context(), f.store, f.o)
	if err != nil {
		t.Fatal(err)
	}
	f.check(true)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	f := open(t, audit.Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 700 {
				f.did("exec")
			}
		})
	}
	wg.Wait()
	if c := f.check(true); c.Records != 5600 {
		t.Errorf("%+v", c)
	}
}

func BenchmarkRecord(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "b.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l, err := audit.Open(b.Context(), s, audit.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		l.Record(bothy.AuditRecord{Time: epoch, ProjectID: "default", TokenID: "tok_a", Action: "exec", Command: "python /workspace/main.py --verbose", Status: 200})
	}
}
