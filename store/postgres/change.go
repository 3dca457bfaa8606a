package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// changeTimeout limits one attempt at a change, and patience the time for retries.
	changeTimeout = 10 * time.Second
	patience      = 3 * time.Second
	retryAfter    = 5 * time.Second
	// largeTimeout limits changes of thousands of rows.
	largeTimeout = 2 * time.Minute

	firstPause, longestPause = 20 * time.Millisecond, 500 * time.Millisecond
)

// statement is one step of a change.
type statement struct {
	text string
	args []any
}

func do(text string, args ...any) statement { return statement{text, args} }

// kind says what guarantees a change needs.
type kind int

const (
	// whole changes are durable once they return, and are retried if their outcome is unknown:
	// they are idempotent.
	whole kind = iota
	// once changes must not be applied twice.
	once
	// large changes are like once ones but may take longer.
	large
	// light changes are like whole ones but do not wait for the disk.
	light
)

func (k kind) repeatable() bool { return k != once && k != large }

func (k kind) timeout() time.Duration {
	if k == large {
		return largeTimeout
	}
	return changeTimeout
}

// change applies all of the statements or none in one round trip, if this server still holds
// the database. It returns how many rows the last one changed. It is not cancelled with ctx
// once it has begun.
func (s *Store) change(ctx context.Context, op string, k kind, list ...statement) (n int, err error) {
	err = s.changing(ctx, op, k, func(ctx context.Context) error {
		n, err = s.send(ctx, k, list, nil)
		return err
	})
	return n, err
}

// send applies a change in one round trip. scan, if not nil, reads the rows of the last
// statement.
func (s *Store) send(ctx context.Context, k kind, list []statement, scan func(pgx.Rows) error) (n int, err error) {
	b := &pgx.Batch{}
	s.hold(b, k)
	for _, st := range list {
		b.Queue(st.text, clean(st.args)...)
	}
	r := s.pool.SendBatch(ctx, b)
	defer func() {
		// An error of the commit itself appears only here.
		if end := r.Close(); err == nil {
			err = end
		}
	}()
	if _, err := r.Exec(); err != nil {
		return 0, err
	}
	for i := range list {
		if scan != nil && i == len(list)-1 {
			rows, err := r.Query()
			if err != nil {
				return 0, err
			}
			err = scan(rows)
			rows.Close()
			return 0, cmp.Or(err, rows.Err())
		}
		tag, err := r.Exec()
		if err != nil {
			return 0, err
		}
		n = int(tag.RowsAffected())
	}
	return n, nil
}

func (s *Store) hold(b *pgx.Batch, k kind) {
	text := `SELECT server_holds($1)`
	if s.shared() {
		text = `SELECT host_holds($1)`
	}
	if k == light {
		text += `, set_config('synchronous_commit', 'off', true)`
	}
	b.Queue(text, s.lease.epoch)
}

// transaction is a change that depends on what it reads.
func (s *Store) transaction(ctx context.Context, op string, k kind, make func(context.Context, pgx.Tx) error) error {
	return s.changing(ctx, op, k, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			s.hold(b, k)
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			return make(ctx, tx)
		})
	})
}

// changing applies a change, and retries it if appropriate.
func (s *Store) changing(ctx context.Context, op string, k kind, make func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %s: %w", op, err)
	}
	if err := s.lease.err(); err != nil {
		return err
	}
	toEnd := context.WithoutCancel(ctx)
	return s.attempts(ctx, op, k.repeatable(), func() error {
		ctx, cancel := context.WithTimeout(toEnd, k.timeout())
		defer cancel()
		return make(ctx)
	})
}

// attempts calls make, again if appropriate.
func (s *Store) attempts(ctx context.Context, op string, repeatable bool, make func() error) error {
	deadline := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := make()
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("store: %s: %w", op, err) // the caller has gone or timed out
		}
		if err == nil || !again(err, repeatable) || time.Now().Add(pause).After(deadline) {
			return s.fault(op, err)
		}
		select {
		case <-ctx.Done():
			return s.fault(op, err)
		case <-time.After(pause):
		}
	}
}

// again reports whether a failed attempt may be repeated: it had no effect, or repeating it is
// harmless, and a new connection may work.
func again(err error, repeatable bool) bool {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		switch e.Code {
		case "40001", "40P01", // serialization failure, deadlock
			"53300", "57P03": // too many connections, starting up
			return true
		}
		return repeatable && gone(err)
	}
	// Do not trust the driver's SafeToRetry: it returns true even if the connection is lost
	// while waiting for the response.
	return isConnect(err) || repeatable && gone(err)
}

func isConnect(err error) bool {
	var e *pgconn.ConnectError
	return errors.As(err, &e)
}

// gone reports whether an error means that the database, or the connection to it, is gone.
func gone(err error) bool {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		switch {
		case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"), e.Code == "25P03", e.Code == "53300", e.Code == "25006":
			return true
		}
		return false
	}
	var network net.Error
	return isConnect(err) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// codeHeld is the database's error for a server that no longer holds it, codeOwned for one that
// changes another host's sandbox, codeDuplicate for a second row with a unique value, codeMost and codeFast for a start beyond the project's plan,
// codeConflict for a write of a sandbox that is not as it was read, and codeFull for a full disk.
const codeHeld, codeOwned, codeMost, codeFast, codeConflict, codeFull, codeDuplicate = "BTHY1", "BTHY2", "BTHY3", "BTHY4", "BTHY5", "53100", "23505"

// fault is the error for the caller.
func (s *Store) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*bothy.Error)(nil); errors.As(err, &e) {
		return err
	}
	wrapped := fmt.Errorf("store: %s: %w", op, err)
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == codeHeld:
		s.loseLease()
		return s.lease.err()
	case errors.As(err, &e) && e.Code == codeOwned:
		return bothy.Errorf(bothy.CodeMisdirected, "another host owns this sandbox now").WithHint("Try again.").Because(wrapped)
	case errors.As(err, &e) && (e.Code == codeMost || e.Code == codeFast):
		return beyond(e)
	case errors.As(err, &e) && e.Code == codeFull:
		return bothy.Errorf(bothy.CodeDiskFull, "the disk of the server's database is full, so nothing can be stored").
			WithHint("Delete unneeded sandboxes and snapshots, or ask the operator for disk space for the database.").Because(wrapped)
	case errors.Is(err, context.Canceled):
		return wrapped
	case gone(err), errors.Is(err, context.DeadlineExceeded):
		hint := "Try again in a few seconds. Sandboxes keep running meanwhile."
		if s.member.Name != "" { // they are frozen before the lease ends
			hint = "Try again in a few seconds. Sandboxes may be frozen until then."
		}
		f := bothy.Errorf(bothy.CodeStore, "the server's database cannot be reached").WithHint("%s", hint).Because(wrapped)
		f.RetryAfter = retryAfter
		return f
	}
	return wrapped
}

// beyond parses the error of host_starts.
func beyond(e *pgconn.PgError) error {
	n, err := strconv.ParseFloat(e.Message, 64)
	if err != nil {
		return fmt.Errorf("store: start sandbox: %w", e)
	}
	if e.Code == codeMost {
		return &store.PlanExceeded{Live: int(n)}
	}
	return &store.PlanExceeded{Wait: max(time.Duration(n*float64(time.Second)), time.Millisecond)}
}

// clean replaces what PostgreSQL's text type cannot hold: zero bytes and invalid UTF-8. Records
// are JSON, which encodes those itself; in the columns used for lookups, a mark with the byte's
// value replaces them.
func clean(args []any) []any {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = cleanText(v)
		case []string:
			for j := range v {
				v[j] = cleanText(v[j])
			}
		}
	}
	return args
}

func cleanText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "\uFFFD%02x", s[i])
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}
