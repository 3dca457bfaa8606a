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
)

// A lease says which server has the database. It is one row, and its time is that of the
// database. Each server that takes it counts its epoch up; every change names the epoch of
// its server, and fails once that is another's (server_holds in the migrations). So the
// time of a lease only decides when another may take over, and never whether a change is
// made: a server that could not renew it in time, and that was not replaced, continues.

const (
	leaseTime  = 15 * time.Second
	renewEvery = 3 * time.Second
	// openingLock is the key of the lock under which the lease is taken. It ends with the
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
	// epoch is this server's, and 0 before it has the lease.
	epoch int64
	gone  atomic.Bool
	// older is set where the database was found to be older than this server's lease on it.
	older atomic.Bool
	lost  chan struct{}
	once  sync.Once
	stop  func()
	// renewed is when the last renewal that came through was sent.
	renewed atomic.Pointer[time.Time]
}

// err is what is wrong with the lease, if anything is.
func (l *lease) err() error {
	if !l.gone.Load() {
		return nil
	}
	if l.older.Load() {
		return bothy.Errorf(bothy.CodeStore, "the database is older than this host, which changes nothing any more").
			WithHint("It was restored from a backup. See docs/cluster.md.")
	}
	if l.shared {
		return bothy.Errorf(bothy.CodeStore, "the other hosts have given this one up, which changes nothing any more").
			WithHint("It joins again when it is restarted.")
	}
	return bothy.Errorf(bothy.CodeStore, "another server has taken over the database of this one, which changes nothing any more").
		WithHint("Ask the other server. Give each server a database of its own.")
}

// WithLease sets for how long the database is taken at a time, and how often that is renewed.
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

// counted reports whether the database has counted this server's epoch, which one that was
// restored from an older backup has not.
func (s *Store) counted() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.renewEvery+time.Second)
	defer cancel()
	var epoch int64
	// Where that cannot be found out, the cautious answer is the one that ends nothing.
	return s.pool.QueryRow(ctx, `SELECT epoch FROM server_lease`).Scan(&epoch) == nil && epoch >= s.lease.epoch
}

// Older reports, once Lost is closed, that this host was not given up: the database is older
// than its lease, or nobody knows.
func (s *Store) Older() bool { return s.lease.older.Load() }

// lockOpening has servers look at the lease one after the other, and refuses one that cannot
// use the tables: it must not take them from one that can.
func lockOpening(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	// Another server's change that never ends must not be waited for.
	b.Queue(`SELECT set_config('lock_timeout', '20000', true)`)
	b.Queue(`SELECT pg_advisory_xact_lock($1)`, int64(openingLock))
	b.Queue(leaseSchema)
	b.Queue(`INSERT INTO server_lease VALUES (1, 0, '', '', '', 'epoch') ON CONFLICT DO NOTHING`)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return checkForm(ctx, tx)
}

// takeLease takes the database for this server, or says who has it.
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
		// The lock waits for changes that the server before has begun, and no change of its
		// begins after it.
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
		if home != "" && s.home != "" && home != s.home {
			return bothy.Errorf(bothy.CodeConflict, "the database belongs to another server's state, %s: its snapshots are not here", home).
				WithHint("Give this server a database of its own, or move the BOTHY_HOME of that server here. If that is lost for good, write %s to the file server-id in this one.", home)
		}
		if s.home != "" {
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

// renewLease renews the lease until stop is called, which waits for its end.
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
				s.log.Warn("the lease on the database cannot be renewed; another server may take it over", "error", reason(err))
			case err == nil && failed:
				s.log.Info("the database answers again")
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

// dropLease lets another server take the database at once.
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
		s.log.Warn("the database could not be let go of; it is free in a few seconds", "error", reason(err))
	}
}
