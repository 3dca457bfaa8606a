package postgres

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// A lease records which server has the database. It is one row, timed by the database's clock.
// Each server that takes it increments the epoch. Every change passes the epoch of its server,
// and fails if another server has a newer one (server_holds in the migrations). So the expiry
// only decides when another server may take over, never whether a change is made: a server that
// could not renew in time, but was not replaced, continues.

const (
	leaseTime  = 15 * time.Second
	renewEvery = 3 * time.Second
	// openingLock is the key of the lock under which the lease is taken. The lock ends with the
	// transaction.
	openingLock = 0x626f746879
)

const leaseSchema = `CREATE TABLE IF NOT EXISTS server_lease (
	one    integer PRIMARY KEY CHECK (one = 1),
	epoch  bigint NOT NULL,
	home   text NOT NULL,
	holder text NOT NULL,
	place  text NOT NULL,
	until  timestamptz NOT NULL
)`

type lease struct {
	holder string
	shared bool
	// epoch is this server's epoch; 0 before it has the lease.
	epoch int64
	gone  atomic.Bool
	// older is set if the database was found to be older than this server's lease on it.
	older atomic.Bool
	lost  chan struct{}
	once  sync.Once
	stop  func()
	// renewed is when the last successful renewal was sent.
	renewed atomic.Pointer[time.Time]
}

// err returns why the lease is lost, or nil.
func (l *lease) err() error {
	if !l.gone.Load() {
		return nil
	}
	e := bothy.Errorf(bothy.CodeStore, "another server has taken over this server's database, so this one no longer writes to it").
		WithHint("Use the other server. Give each server its own database.")
	switch {
	case l.older.Load():
		e = bothy.Errorf(bothy.CodeStore, "the database is older than this host, so this host no longer writes to it").
			WithHint("It was restored from a backup. See docs/cluster.md.")
	case l.shared:
		e = bothy.Errorf(bothy.CodeStore, "the other hosts have given this one up, so it no longer writes to the database").
			WithHint("Try again in a few seconds: another host answers then. This one rejoins when it is restarted.")
	}
	e.RetryAfter = retryAfter
	return e.Because(store.ErrLost)
}

// WithLease sets the duration of the lease, and how often it is renewed.
func WithLease(of, every time.Duration) Option {
	return func(s *Store) { s.leaseTime, s.renewEvery = of, every }
}

// Lost is closed when another server has taken over the database. From then on every change
// fails.
func (s *Store) Lost() <-chan struct{} { return s.lease.lost }

func (s *Store) loseLease() {
	s.lease.once.Do(func() {
		s.lease.older.Store(s.shared() && !s.counted())
		s.lease.gone.Store(true)
		close(s.lease.lost)
	})
}

// counted reports whether the database has counted this server's epoch. A database restored
// from an older backup has not.
func (s *Store) counted() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.renewEvery+time.Second)
	defer cancel()
	var epoch int64
	// If unknown, return false: then no sandbox is ended.
	return s.pool.QueryRow(ctx, `SELECT epoch FROM server_lease`).Scan(&epoch) == nil && epoch >= s.lease.epoch
}

// Older reports, once Lost is closed, that this host was not given up: the database is older
// than its lease, or its age is unknown.
func (s *Store) Older() bool { return s.lease.older.Load() }

// lockOpening serialises access to the lease, and refuses a server that is too old for the
// tables: it must not take the database from one that is not.
func lockOpening(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	// Do not wait for another server's change that never ends.
	b.Queue(`SELECT set_config('lock_timeout', '20000', true)`)
	b.Queue(`SELECT pg_advisory_xact_lock($1)`, int64(openingLock))
	b.Queue(leaseSchema)
	b.Queue(`INSERT INTO server_lease VALUES (1, 0, '', '', '', 'epoch') ON CONFLICT DO NOTHING`)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return checkForm(ctx, tx)
}

// takeLease takes the database for this server, or returns who has it.
func (s *Store) takeLease(ctx context.Context) error {
	l := &s.lease
	l.lost = make(chan struct{})
	if l.holder == "" {
		l.holder = random.Hex(16)
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := lockOpening(ctx, tx); err != nil {
			return err
		}
		// The lock waits for changes that the previous server has begun, and fences off later
		// ones.
		var home, holder, place string
		var held bool
		var left float64
		err := tx.QueryRow(ctx, `SELECT epoch, home, holder, place, until > clock_timestamp(), extract(epoch FROM until - clock_timestamp())::float8
			FROM server_lease FOR UPDATE`).Scan(&l.epoch, &home, &holder, &place, &held, &left)
		if err != nil {
			return err
		}
		if held && holder != l.holder {
			return bothy.Errorf(bothy.CodeConflict, "another server uses this database: %s", place).
				WithHint("Stop that server, or give this one another database. If it is dead, the database is free in %d seconds.", int(left)+1)
		}
		if home == sharedHome && s.home != "" && !s.clusterLeft {
			return bothy.Errorf(bothy.CodeConflict, "the database belongs to a cluster, and cluster.name is not set").
				WithHint("Set cluster.name and cluster.listen in the settings, as docs/cluster.md says, or give this server its own database. The last host of a cluster can take the records back: `bothy migrate --from URL --to sqlite`.")
		}
		if home == sharedHome && s.home != "" {
			if err := s.checkLeft(ctx, tx); err != nil {
				return err
			}
		} else if home != "" && s.home != "" && home != s.home {
			return bothy.Errorf(bothy.CodeConflict, "the database belongs to the state of another server, %s, whose snapshots are not here", home).
				WithHint("Give this server its own database, or move the BOTHY_HOME of that server here. If that is lost for good, write %s to the file server-id in this one.", home)
		}
		if s.home != "" && home != sharedHome {
			home = s.home
		}
		l.epoch++
		host, _ := os.Hostname()
		_, err = tx.Exec(ctx, `UPDATE server_lease SET epoch = $1, holder = $2, place = $3, until = clock_timestamp() + make_interval(secs => $4), home = $5`,
			l.epoch, l.holder, fmt.Sprintf("process %d on %s", os.Getpid(), cleanText(host)), s.leaseTime.Seconds(), home)
		return err
	})
	if err != nil {
		l.epoch = 0
		return unreachable(err)
	}
	l.stop = s.renewLease()
	return nil
}

// renewLease renews the lease until stop is called. stop waits for it to end.
func (s *Store) renewLease() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(s.renewEvery)
		defer t.Stop()
		failed := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.lease.lost:
				s.log.Error(s.lease.err().Error())
				return
			case <-t.C:
			}
			held, err := s.renew(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && !held:
				s.loseLease()
			case err != nil && !failed:
				s.log.Warn("cannot renew the lease on the database; another server may take it over", "error", reason(err))
			case err == nil && failed:
				s.log.Info("the database is reachable again")
			}
			if failed = err != nil; !failed {
				s.settleAll(ctx)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (s *Store) renew(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.renewEvery, time.Second))
	defer cancel()
	if s.shared() {
		return s.renewShared(ctx)
	}
	tag, err := s.pool.Exec(ctx, `UPDATE server_lease SET until = clock_timestamp() + make_interval(secs => $2) WHERE epoch = $1`, s.lease.epoch, s.leaseTime.Seconds())
	return tag.RowsAffected() == 1, err
}

// dropLease releases the database, so that another server can take it at once.
func (s *Store) dropLease() {
	if s.lease.epoch == 0 {
		return
	}
	if s.lease.stop == nil {
		s.endTurn()
		return
	}
	s.lease.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if s.shared() {
		s.leaveShared(ctx)
		return
	}
	if _, err := s.pool.Exec(ctx, `UPDATE server_lease SET until = clock_timestamp() WHERE epoch = $1`, s.lease.epoch); err != nil {
		s.log.Warn("cannot release the database; it is free once the lease expires", "error", reason(err))
	}
}
