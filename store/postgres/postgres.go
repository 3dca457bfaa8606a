// Package postgres keeps the server's state in a PostgreSQL database, 14 or later. One server
// at a time uses a database: it holds a lease on it. With WithMember several share it, each
// with its own lease. Only server and tests open it.
//
// It relies on nothing in a connection beyond a transaction, so that a pooler may be in
// between: no prepared statements, no session locks, no notifications.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is a store.Store in a PostgreSQL database.
//
// Writes are as durable as the database's commits, except for answers, the last use of
// tokens, and the progress of webhooks and agents: these are not waited for, and the last
// of them may be lost if the database's host crashes, as they are with a server's host.
type Store struct {
	pool    *pgxpool.Pool
	now     func() time.Time
	log     *slog.Logger
	answers answers
	lease   lease
	events  eventQueue
	// member is this server among those that share the database; without a name it is the
	// only one.
	member  Member
	figures atomic.Pointer[func() bothy.HostFigures]
	// wanted is what was wanted of this host at the last renewal.
	wanted atomic.Pointer[string]
	// lastEpoch is what it had when it opened the database before.
	lastEpoch int64

	home                            string
	leaseTime, renewEvery, patience time.Duration

	closing sync.Once
}

var _ store.Store = (*Store)(nil)

// Option changes how a store is opened.
type Option func(*Store)

// WithNow sets the clock by which stored answers grow old.
func WithNow(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// WithLog sets where the store logs events of its lease.
func WithLog(log *slog.Logger) Option { return func(s *Store) { s.log = log } }

// WithAnswerBounds sets how much is kept for idempotency keys.
func WithAnswerBounds(b store.AnswerBounds) Option { return func(s *Store) { s.answers.bounds = b } }

// WithHome names the folder with what is not in the database: the snapshots and the
// machines. A database belongs to the first home that opens it, and no other can open it
// after that.
func WithHome(id string) Option { return func(s *Store) { s.home = id } }

// WithPatience sets for how long a database that does not answer is waited for.
func WithPatience(d time.Duration) Option { return func(s *Store) { s.patience = d } }

// WithHolder names the server that opens the store. If a server died without releasing the
// database, the next one with its name takes over at once: the caller must be sure that it
// is dead.
func WithHolder(name string) Option { return func(s *Store) { s.lease.holder = name } }

// Open connects to the database of a URL, takes it for this server, and makes or brings up
// to date its tables.
func Open(ctx context.Context, url string, opts ...Option) (_ *Store, err error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	s := &Store{now: time.Now, log: slog.New(slog.DiscardHandler), leaseTime: leaseTime, renewEvery: renewEvery, patience: openPatience}
	s.answers.bounds = store.DefaultAnswerBounds
	for _, o := range opts {
		o(s)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, unreachable(err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.awaitDatabase(ctx); err != nil {
		return nil, err
	}
	take := s.takeLease
	if s.shared() {
		take = s.openShared
	}
	if err := take(ctx); err != nil {
		return nil, err
	}
	if err := migrate(ctx, config); err != nil {
		return nil, fmt.Errorf("bring the database up to date: %w", err)
	}
	if s.shared() {
		if err := s.register(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.answers.count(ctx, s.pool); err != nil {
		return nil, fmt.Errorf("count the answers in the database: %w", err)
	}
	return s, nil
}

const (
	// connections is the size of the pool if the URL does not set it.
	connections = 16
	// connectTimeout is how long a host may take to answer if the URL does not set it.
	connectTimeout = 5 * time.Second
	// openPatience is for a database that starts with the same host as the server.
	openPatience = 15 * time.Second
	// oldest is the first version that has all that is used.
	oldest = 140000
)

// parse reads a URL of a database, and whatever the environment adds to it.
func parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The driver's own words may quote the URL, which may hold a password.
		return nil, bothy.Errorf(bothy.CodeInvalid, "the URL of the database cannot be read").
			WithHint("Write it as postgres://USER@HOST:5432/DATABASE, with %%-escapes in its parts, and give the password by PGPASSWORD or PGPASSFILE.")
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = connections
	}
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "bothy"
	}
	return config, nil
}

// awaitDatabase waits until the database answers, and refuses one that is too
// old.
func (s *Store) awaitDatabase(ctx context.Context) error {
	deadline := time.Now().Add(s.patience)
	for said := false; ; said = true {
		err := s.checkVersion(ctx)
		if err == nil || !again(err, true) || ctx.Err() != nil || !time.Now().Add(longestPause).Before(deadline) {
			return err
		}
		if !said {
			s.log.Warn("the database does not answer yet", "error", reason(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(longestPause):
		}
	}
}

// checkVersion refuses a database that is too old, and checks whether it can be reached.
func (s *Store) checkVersion(ctx context.Context) error {
	var number int
	var name string
	err := s.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version')`).Scan(&number, &name)
	if err != nil {
		return unreachable(err)
	}
	if number < oldest {
		return bothy.Errorf(bothy.CodeUnsupported, "the database is PostgreSQL %s", name).WithHint("Use PostgreSQL 14 or later.")
	}
	return nil
}

// Info is what Check finds out.
type Info struct {
	// Version is PostgreSQL's, and RoundTrip how long a question takes.
	Version   string
	RoundTrip time.Duration
	// Server is the server that has the database, if one has.
	Server string
}

// Check connects to the database of a URL, and changes nothing. A database that this
// program is too old for is an error.
func Check(ctx context.Context, url string) (i Info, err error) {
	config, err := parse(url)
	if err != nil {
		return i, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return i, unreachable(err)
	}
	defer pool.Close()
	if err := (&Store{pool: pool}).checkVersion(ctx); err != nil {
		return i, err
	}
	var used bool
	start := time.Now()
	err = pool.QueryRow(ctx, `SELECT current_setting('server_version'), to_regclass('server_lease') IS NOT NULL`).Scan(&i.Version, &used)
	i.RoundTrip = time.Since(start)
	if err == nil && used {
		err = pool.QueryRow(ctx, `SELECT CASE WHEN until > clock_timestamp() THEN place ELSE '' END FROM server_lease`).Scan(&i.Server)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
	}
	if err != nil {
		return i, unreachable(err)
	}
	if err := checkForm(ctx, pool); err != nil {
		return i, unreachable(err)
	}
	return i, nil
}

// checkForm refuses tables written by a newer server. The server that migrates them holds the
// lease, so they do not change while the lease is being taken.
func checkForm(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	known, err := newestForm()
	if err != nil {
		return err
	}
	var there bool
	if err := db.QueryRow(ctx, `SELECT to_regclass('`+formsTable+`') IS NOT NULL`).Scan(&there); err != nil || !there {
		return err
	}
	var has int64
	if err := db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+formsTable+` WHERE is_applied`).Scan(&has); err != nil {
		return err
	}
	if has > known {
		return bothy.Errorf(bothy.CodeUnsupported, "the database was written by a newer server (its form is %d, and this program knows those up to %d)", has, known).
			WithHint("Start the newer program, which other hosts of a cluster have already, or restore the backup from before the upgrade.")
	}
	return nil
}

// formsTable is where goose writes down which migrations were made.
const formsTable = "schema_versions"

// newestForm is the number of the last migration that this program knows.
func newestForm() (newest int64, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, n)
	}
	return newest, nil
}

func migrate(ctx context.Context, config *pgxpool.Config) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir, goose.WithTableName(formsTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// Close lets go of the database, and waits for the calls that are under way.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.settleAll(context.Background())
		s.dropLease()
		s.pool.Close()
	})
	return nil
}

// unreachable is the error of a database that was never reached.
func unreachable(err error) error {
	if e := (*bothy.Error)(nil); errors.As(err, &e) {
		return err
	}
	return bothy.Errorf(bothy.CodeStore, "the database cannot be used: %s", reason(err)).
		WithHint("Check the `store` setting, that PostgreSQL runs there, and that it lets this user in.").Because(err)
}

// reason describes an error in one line.
func reason(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return fmt.Sprintf("%s (%s)", e.Message, e.Code)
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
