// Package postgres stores the server's state in a PostgreSQL database, version 14 or later. One
// server at a time uses a database: it holds a lease on it. With WithMember several servers
// share it, each with its own lease. Only server and tests open it.
//
// It relies on no connection state outside of transactions, so that a pooler can be used: no
// prepared statements, no session locks, no notifications.
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
// Writes are as durable as the database's commits, except for answers, the last use of tokens,
// and the progress of webhooks and agents: these are not waited for, and the most recent may be
// lost if the database's host crashes.
type Store struct {
	pool    *pgxpool.Pool
	now     func() time.Time
	log     *slog.Logger
	answers answers
	lease   lease
	events  eventQueue
	unsure  unsure
	// member is this server among those that share the database; its name is empty if the
	// server is the only one.
	member  Member
	figures atomic.Pointer[func() bothy.HostFigures]
	// wanted is the state wanted of this host as of the last renewal.
	wanted atomic.Pointer[string]
	// lastEpoch is the last epoch that this server had.
	lastEpoch int64

	home string
	// clusterLeft takes the database of a cluster without being one of its hosts.
	clusterLeft                     bool
	leaseTime, renewEvery, patience time.Duration

	closing sync.Once
}

var _ store.Store = (*Store)(nil)

// Option configures a store.
type Option func(*Store)

// WithNow sets the clock for the expiry of answers.
func WithNow(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// WithLog sets the log for events of the lease.
func WithLog(log *slog.Logger) Option { return func(s *Store) { s.log = log } }

// WithAnswerBounds limits what is stored for idempotency keys.
func WithAnswerBounds(b store.AnswerBounds) Option { return func(s *Store) { s.answers.bounds = b } }

// WithHome identifies the folder with what is not in the database: the snapshots and the
// machines. A database belongs to the first home that opens it; others are refused.
func WithHome(id string) Option { return func(s *Store) { s.home = id } }

// WithPatience sets how long to wait for a database that does not respond.
func WithPatience(d time.Duration) Option { return func(s *Store) { s.patience = d } }

// WithHolder identifies the server that opens the store. If a server died without releasing the
// database, the next one with the same holder takes over at once: the caller must be sure that
// it is dead.
func WithHolder(name string) Option { return func(s *Store) { s.lease.holder = name } }

// Open connects to the database at a URL, takes it for this server, and creates or migrates its
// tables.
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
		return nil, fmt.Errorf("migrate the database: %w", err)
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
	// connections is the default pool size.
	connections = 16
	// connectTimeout is the default timeout for connecting.
	connectTimeout = 5 * time.Second
	// openPatience is how long to wait for a database that may be starting together with the
	// server.
	openPatience = 15 * time.Second
	// oldest is the oldest supported version.
	oldest = 140000
)

// parse parses a database URL, with defaults from the environment.
func parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The driver's error may quote the URL, which may contain a password.
		return nil, bothy.Errorf(bothy.CodeInvalid, "the URL of the database is invalid").
			WithHint("Write it as postgres://USER@HOST:5432/DATABASE, with %%-escapes in its parts, and set the password with PGPASSWORD or PGPASSFILE.")
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

// awaitDatabase waits until the database responds, and refuses one that is too old.
func (s *Store) awaitDatabase(ctx context.Context) error {
	deadline := time.Now().Add(s.patience)
	var last error
	for said := false; ; said = true {
		err := s.checkVersion(ctx)
		if last != nil && err != nil && ctx.Err() != nil {
			return last // that the wait was ended says less
		}
		if err == nil || !again(err, true) || ctx.Err() != nil || !time.Now().Add(longestPause).Before(deadline) {
			return err
		}
		last = err
		if !said {
			s.log.Warn("the database does not respond yet", "error", reason(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(longestPause):
		}
	}
}

// checkVersion returns an error if the database is too old or unreachable.
func (s *Store) checkVersion(ctx context.Context) error {
	var number int
	var name string
	err := s.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version')`).Scan(&number, &name)
	if err != nil {
		return unreachable(err)
	}
	if number < oldest {
		return bothy.Errorf(bothy.CodeUnsupported, "the database is PostgreSQL %s, which is too old", name).WithHint("Use PostgreSQL 14 or later.")
	}
	return nil
}

// Info is the result of Check.
type Info struct {
	// Version is the version of PostgreSQL, and RoundTrip the time for a query.
	Version   string
	RoundTrip time.Duration
	// Server is the server that holds the database, if any.
	Server string
}

// Check connects to a database without changing anything. It returns an error if the database
// needs a newer version of this program.
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

// checkForm refuses tables migrated by a newer server. The server that migrates them holds the
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
		return bothy.Errorf(bothy.CodeUnsupported, "the database was migrated by a newer server (its schema is version %d, this program supports up to %d)", has, known).
			WithHint("Upgrade this server, as other hosts of the cluster have been, or restore the backup from before the upgrade.")
	}
	return nil
}

// formsTable is where goose records the applied migrations.
const formsTable = "schema_versions"

// newestForm is the number of the last migration in this program.
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

// Close releases the database, and waits for calls in flight.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.settleAll(context.Background())
		s.dropLease()
		s.pool.Close()
	})
	return nil
}

// unreachable returns the error for a database that could not be opened.
func unreachable(err error) error {
	if e := (*bothy.Error)(nil); errors.As(err, &e) {
		return err
	}
	return bothy.Errorf(bothy.CodeStore, "cannot use the database: %s", reason(err)).
		WithHint("Check the `store` setting, that PostgreSQL is running there, and that it accepts this user.").Because(err)
}

// reason describes an error in one line. A connection is tried at several addresses, with TLS and
// without, so the same failure may be in several lines of an error: it is said once.
func reason(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return fmt.Sprintf("%s (%s)", e.Message, e.Code)
	}
	if e := (*bothy.Error)(nil); errors.As(err, &e) {
		return e.Detail
	}
	var text string
	for line := range strings.Lines(err.Error()) {
		if line = strings.Join(strings.Fields(line), " "); !strings.Contains(text, line) {
			text = strings.TrimSpace(text + " " + line)
		}
	}
	return text
}
