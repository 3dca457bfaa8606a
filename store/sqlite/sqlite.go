// Package sqlite stores the server's state in a SQLite file. It is the store of a single host;
// only server and tests open it.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the database driver

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readers is the number of concurrent reads.
const readers = 4

// Store is a store.Store in a SQLite file.
//
// The file is in WAL mode. A commit without a sync is in the operating system's cache and
// survives a crash of this process; one with a sync also survives a power cut, and costs an
// fsync. So there are two connections that write: fast for what is lost with the host anyway,
// durable for what must outlive it. write is held while either is used, because SQLite allows
// only one writer at a time, and waiting here is cheaper and fairer than its busy loop.
type Store struct {
	write   sync.Mutex
	fast    *sql.DB
	durable *sql.DB
	read    *sql.DB
	path    string
	now     func() time.Time
	answers answers
	reserve reserve
	stmt    statements
	usage   usageStatements
}

var _ store.Store = (*Store)(nil)

// Option configures a store.
type Option func(*Store)

// WithNow sets the clock for the expiry of answers.
func WithNow(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Open opens the database at path. It creates it, readable only by its owner, or migrates it as
// needed.
func Open(ctx context.Context, path string, opts ...Option) (_ *Store, err error) {
	if err := roomToMap(filepath.Dir(path), unix.Statfs); err != nil {
		return nil, err
	}
	if err := makePrivate(path); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := &Store{path: path, now: time.Now}
	s.answers.bounds = store.DefaultAnswerBounds
	for _, o := range opts {
		o(s)
	}
	defer func() {
		if err != nil {
			s.closeAll()
		}
	}()
	if s.durable, err = connect(path, "FULL", 1); err != nil {
		return nil, err
	}
	if err := s.answers.open(ctx, answersPath(path)); err != nil {
		return nil, err
	}
	if err := migrate(ctx, s.durable, &s.answers); err != nil {
		return nil, fmt.Errorf("migrate the database %s: %w", path, err)
	}
	if s.fast, err = connect(path, "NORMAL", 1); err != nil {
		return nil, err
	}
	if s.read, err = connect(path, "NORMAL", readers); err != nil {
		return nil, err
	}
	if err := s.stmt.prepare(ctx, s); err != nil {
		return nil, err
	}
	if err := s.usage.prepare(ctx, s.fast); err != nil {
		return nil, err
	}
	s.reserve.open(reservePath(path))
	return s, nil
}

// makePrivate creates the file before SQLite does, which would use mode 0644. Its companion
// files get the same mode.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

func connect(path, synchronous string, conns int) (*sql.DB, error) {
	q := url.Values{"_pragma": {
		"busy_timeout(10000)",
		"journal_mode(WAL)",
		"synchronous(" + synchronous + ")",
		"temp_store(MEMORY)",
	}}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	if path[0] != '/' {
		u.Opaque, u.Path = u.EscapedPath(), ""
	}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func migrate(ctx context.Context, db *sql.DB, a *answers) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithGoMigrations(moveAnswers(a)))
	if err != nil {
		return err
	}
	if err := refuseNewer(ctx, p); err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// refuseNewer refuses a database that a newer server has migrated: this one would neither read
// nor preserve what it does not know.
func refuseNewer(ctx context.Context, p *goose.Provider) error {
	has, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	known := int64(0)
	for _, m := range p.ListSources() {
		known = max(known, m.Version)
	}
	if has <= known {
		return nil
	}
	return bothy.Errorf(bothy.CodeUnsupported, "the database was migrated by a newer server (its schema is version %d, this program supports up to %d)", has, known).
		WithHint("Start the newer program again, or restore the backup from before the upgrade.")
}

// Close closes the file. Calls in flight fail.
func (s *Store) Close() error { return s.closeAll() }

func (s *Store) closeAll() error {
	var errs []error
	// The connection closed last checkpoints the WAL into the database, so it must be one that
	// syncs.
	for _, db := range []*sql.DB{s.answers.db, s.read, s.fast, s.durable} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.reserve.close())...)
}

// exec runs a prepared change. It is not cancelled with ctx: watching for that would take a
// quarter of the time.
func (s *Store) exec(ctx context.Context, op string, st *sql.Stmt, args ...any) (sql.Result, error) {
	s.write.Lock()
	defer s.write.Unlock()
	return s.execLocked(ctx, op, st, args...)
}

func (s *Store) execLocked(ctx context.Context, op string, st *sql.Stmt, args ...any) (sql.Result, error) {
	err := ctx.Err()
	var r sql.Result
	if err == nil {
		r, err = st.ExecContext(context.WithoutCancel(ctx), args...)
	}
	if err != nil {
		return nil, s.fault(op, err)
	}
	return r, nil
}

func (s *Store) execCount(ctx context.Context, op string, st *sql.Stmt, args ...any) (int, error) {
	return count(s.exec(ctx, op, st, args...))
}

// execReserved is execCount with the reserve.
func (s *Store) execReserved(ctx context.Context, op string, st *sql.Stmt, args ...any) (n int, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	err = s.withReserve(func() error {
		n, err = count(s.execLocked(ctx, op, st, args...))
		return err
	})
	return n, err
}

func count(r sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// deleteAtOnce is how many rows one change deletes, so that other writers do not wait for all
// of them.
const deleteAtOnce = 500

// deleteOld deletes rows older than t in batches, and returns how many.
func (s *Store) deleteOld(ctx context.Context, op string, st *sql.Stmt, t time.Time) (int, error) {
	for all := 0; ; {
		n, err := s.execCount(ctx, op, st, nanos(t), deleteAtOnce)
		if all += n; err != nil || n < deleteAtOnce {
			return all, err
		}
	}
}

// nanos is how times are stored in columns: they compare and sort as numbers.
func nanos(t time.Time) int64 { return t.UnixNano() }

// nanosOrNull stores a missing time as NULL.
func nanosOrNull(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixNano()
}
