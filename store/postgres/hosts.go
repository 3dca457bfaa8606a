package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// Servers that share a database have a row each in the table hosts, with a lease and an epoch.
// They take turns holding the single row of server_lease while they migrate the tables. That
// row also counts the epochs.

const (
	// sharedHome replaces the home in the lease of a shared database.
	sharedHome = "cluster"
	// openingTime is how long a joining host has the tables for itself, and openingPatience how
	// long others wait for their turn.
	openingTime     = time.Minute
	openingPatience = 90 * time.Second
	// restartTime is how long a stopped host may take to come back before the others give it
	// up.
	restartTime = 2 * time.Minute
)

// Member is one of the servers that share a database.
type Member struct {
	// Name is the host's name, and Address where the others reach it.
	Name, Address string
	Labels        map[string]string
	Processor     bothy.HostProcessor
}

// WithMember makes the server share the database with others.
func WithMember(m Member) Option {
	return func(s *Store) { s.member, s.lease.shared = m, true }
}

// WithLastEpoch sets the epoch that this server had last. A database whose count is lower is
// refused, since it is an older copy or a different one.
func WithLastEpoch(n int64) Option { return func(s *Store) { s.lastEpoch = n } }

var _ store.Hosts = (*Store)(nil)

func (s *Store) shared() bool { return s.lease.shared }

// ownEpoch is the host epoch of new sandboxes.
func (s *Store) ownEpoch() int64 {
	if s.shared() {
		return s.lease.epoch
	}
	return 0
}

// openShared takes the turn to migrate the tables, with a new epoch.
func (s *Store) openShared(ctx context.Context) error {
	l := &s.lease
	l.lost = make(chan struct{})
	if l.holder == "" {
		l.holder = random.Hex(16)
	}
	deadline := time.Now().Add(openingPatience)
	for {
		busy, err := s.takeTurn(ctx)
		if err != nil || busy != "" {
			l.epoch = 0 // another host has the turn
		}
		if err != nil {
			return unreachable(err)
		}
		if busy == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return bothy.Errorf(bothy.CodeConflict, "another host has been opening the database for too long: %s", busy).
				WithHint("Check that server, and start this one again.")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(firstPause * 5):
		}
	}
}

// takeTurn takes the turn, or returns who else has it.
func (s *Store) takeTurn(ctx context.Context) (busy string, err error) {
	l := &s.lease
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := lockOpening(ctx, tx); err != nil {
			return err
		}
		var home, holder, place string
		var held bool
		err := tx.QueryRow(ctx, `SELECT epoch, home, holder, place, until > clock_timestamp() FROM server_lease FOR UPDATE`).
			Scan(&l.epoch, &home, &holder, &place, &held)
		if err != nil {
			return err
		}
		if home != "" && home != sharedHome && home != s.home {
			return bothy.Errorf(bothy.CodeConflict, "the database belongs to a server without the cluster setting, with the state %s", home).
				WithHint("Add the `cluster` setting to that server first, so that it becomes the first host, or use another database in `store`.")
		}
		if held && holder != l.holder {
			// Without a home, the first host is still opening a new database.
			if home != "" && home != sharedHome {
				return bothy.Errorf(bothy.CodeConflict, "another server uses this database: %s", place).WithHint("Stop that server.")
			}
			busy = place
			return nil
		}
		if l.epoch < s.lastEpoch {
			return bothy.Errorf(bothy.CodeConflict, "the database is an older copy or a different one: its epoch is %d, but this host has already had epoch %d", l.epoch, s.lastEpoch).
				WithHint("Restore its newest backup. To continue with it as it is, stop all hosts, and delete the file cluster-epoch in the BOTHY_HOME of each. Sandboxes that the database does not know are then kept, frozen.")
		}
		l.epoch++
		host, _ := os.Hostname()
		// The home stays until this host has registered: only then does it own what was there.
		_, err = tx.Exec(ctx, `UPDATE server_lease SET epoch = $1, holder = $2, place = $3, until = clock_timestamp() + make_interval(secs => $4)`,
			l.epoch, l.holder, fmt.Sprintf("process %d on %s", os.Getpid(), cleanText(host)), openingTime.Seconds())
		return err
	})
	return busy, err
}

// endTurn lets the next host open the database if this one failed before registering.
func (s *Store) endTurn() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := s.pool.Exec(ctx, `UPDATE server_lease SET until = clock_timestamp() WHERE epoch = $1`, s.lease.epoch); err != nil {
		s.log.Warn("cannot release the turn to open the database; other hosts must wait until it expires", "error", reason(err))
	}
}

// register makes this server one of the hosts, and ends its turn.
func (s *Store) register(ctx context.Context) error {
	l := &s.lease
	labels, err := json.Marshal(s.member.Labels)
	if err != nil {
		return err
	}
	processor, err := json.Marshal(s.member.Processor)
	if err != nil {
		return err
	}
	sent := time.Now()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', '20000', true)`); err != nil {
			return err
		}
		var home string
		err := tx.QueryRow(ctx, `SELECT home FROM server_lease WHERE epoch = $1 FOR UPDATE`, l.epoch).Scan(&home)
		if errors.Is(err, pgx.ErrNoRows) {
			return bothy.Errorf(bothy.CodeConflict, "this host took too long to join, and another host took its turn").WithHint("Start this server again.")
		}
		if err != nil {
			return err
		}
		if err := s.replaceHost(ctx, tx, string(labels), string(processor)); err != nil {
			return err
		}
		b := &pgx.Batch{}
		// What it owned before, it owns again under its new epoch.
		b.Queue(`UPDATE sandboxes SET host_epoch = $2 WHERE host = $1`, s.member.Name, l.epoch)
		if home != sharedHome {
			b.Queue(`UPDATE sandboxes SET host = $1, host_epoch = $2 WHERE host = ''`, s.member.Name, l.epoch)
			b.Queue(`UPDATE snapshots SET host = $1 WHERE host = ''`, s.member.Name)
			b.Queue(`UPDATE usage_marks SET host = $1 WHERE host = ''`, s.member.Name)
		}
		b.Queue(`UPDATE server_lease SET home = $2, until = clock_timestamp() WHERE epoch = $1`, l.epoch, sharedHome)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return unreachable(err)
	}
	l.renewed.Store(&sent)
	l.stop = s.renewLease()
	return nil
}

// replaceHost writes this server's row, replacing that of its previous run.
func (s *Store) replaceHost(ctx context.Context, tx pgx.Tx, labels, processor string) error {
	var home, holder, place string
	var lives bool
	var left float64
	// The lock waits for changes that the previous run has begun, and fences off later ones.
	err := tx.QueryRow(ctx, `SELECT home, holder, address, dead_at IS NULL AND until > clock_timestamp(), extract(epoch FROM until - clock_timestamp())::float8
		FROM hosts WHERE id = $1 FOR UPDATE`, s.member.Name).Scan(&home, &holder, &place, &lives, &left)
	found := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err := s.checkName(ctx, tx); err != nil {
		return err
	}
	if found && home != s.home {
		return bothy.Errorf(bothy.CodeConflict, "another host already has the name %s, at %s", s.member.Name, place).
			WithHint("Set another `cluster.name` for this host.")
	}
	if found && lives && holder != s.lease.holder {
		return bothy.Errorf(bothy.CodeConflict, "the host %s is already running, at %s", s.member.Name, place).
			WithHint("Stop it, or wait %d seconds if it is dead.", int(left)+1)
	}
	text := `INSERT INTO hosts (id, epoch, home, holder, address, wish, until, joined, labels, processor, figures)
		VALUES ($1, $2, $3, $4, $5, 'up', clock_timestamp() + make_interval(secs => $6), clock_timestamp(), $7, $8, '{}')`
	if found {
		text = `UPDATE hosts SET epoch = $2, home = $3, holder = $4, address = $5, until = clock_timestamp() + make_interval(secs => $6),
			labels = $7, processor = $8, dead_at = NULL, wish = CASE wish WHEN 'leaving' THEN 'up' ELSE wish END WHERE id = $1`
	}
	_, err = tx.Exec(ctx, text, s.member.Name, s.lease.epoch, s.home, s.lease.holder, s.member.Address, s.leaseTime.Seconds(), labels, processor)
	return err
}

// checkName returns an error if this server has sandboxes under another name: it would not
// recognise them, and the others would give them up.
func (s *Store) checkName(ctx context.Context, tx pgx.Tx) error {
	var name string
	var sandboxes int
	err := tx.QueryRow(ctx, `SELECT h.id, count(*) FROM hosts h JOIN sandboxes s ON s.host = h.id AND s.state NOT IN ('stopped', 'failed')
		WHERE h.home = $1 AND h.id <> $2 GROUP BY h.id LIMIT 1`, s.home, s.member.Name).Scan(&name, &sandboxes)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return bothy.Errorf(bothy.CodeConflict, "this host is %s in the cluster and owns %d sandboxes, but cluster.name is %s", name, sandboxes, s.member.Name).
		WithHint("Set `cluster.name` to %s again. To rename the host, first move its sandboxes away with `bothy host drain %s`.", name, name)
}

func (s *Store) renewShared(ctx context.Context) (held bool, err error) {
	figures := []byte("{}")
	if f := s.figures.Load(); f != nil {
		if figures, err = json.Marshal((*f)()); err != nil {
			return false, err
		}
	}
	sent := time.Now()
	var wish string
	err = s.pool.QueryRow(ctx, `UPDATE hosts SET until = clock_timestamp() + make_interval(secs => $2), figures = $3 WHERE epoch = $1 AND dead_at IS NULL RETURNING wish`,
		s.lease.epoch, s.leaseTime.Seconds(), string(figures)).Scan(&wish)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.wanted.Store(&wish)
	s.lease.renewed.Store(&sent)
	return true, nil
}

// leaveShared extends the lease for a restart, and releases this host's duties.
func (s *Store) leaveShared(ctx context.Context) {
	b := &pgx.Batch{}
	b.Queue(`UPDATE hosts SET until = clock_timestamp() + make_interval(secs => $2) WHERE epoch = $1 AND dead_at IS NULL`, s.lease.epoch, max(restartTime, s.leaseTime).Seconds())
	b.Queue(`DELETE FROM host_duties WHERE epoch = $1`, s.lease.epoch)
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		s.log.Warn("cannot extend the lease for a restart; the other hosts may give this one up", "error", reason(err))
	}
}

// NotStarted implements store.Hosts.
func (s *Store) NotStarted(ctx context.Context, why string) error {
	s.lease.stop() // a renewal would replace what is written here
	b := &pgx.Batch{}
	b.Queue(`DELETE FROM hosts WHERE id = $1 AND epoch = $2 AND figures = '{}' AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE host = $1)
		AND NOT EXISTS (SELECT 1 FROM snapshots WHERE host = $1)`, s.member.Name, s.lease.epoch)
	b.Queue(`UPDATE hosts SET figures = (figures::jsonb || jsonb_build_object('start_problem', $3::text))::text WHERE id = $1 AND epoch = $2`,
		clean([]any{s.member.Name, s.lease.epoch, why})...)
	return s.pool.SendBatch(ctx, b).Close()
}

// Self implements store.Hosts.
func (s *Store) Self() string { return s.member.Name }

// Epoch implements store.Hosts.
func (s *Store) Epoch() int64 { return s.lease.epoch }

// Wanted implements store.Hosts.
func (s *Store) Wanted() bothy.HostState {
	w := s.wanted.Load()
	switch {
	case w == nil:
		return bothy.HostUp
	case *w == leaving:
		return bothy.HostDraining
	}
	return bothy.HostState(*w)
}

// Renewed implements store.Hosts.
func (s *Store) Renewed() time.Time {
	if t := s.lease.renewed.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// SetFigures implements store.Hosts.
func (s *Store) SetFigures(f func() bothy.HostFigures) { s.figures.Store(&f) }

// Hosts implements store.Hosts.
func (s *Store) Hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	return s.listHosts(ctx, `(SELECT count(*) FROM sandboxes s WHERE s.host = h.id AND s.state NOT IN ('stopped', 'failed') AND NOT pooled)`, `processor`)
}

// Peers implements store.Hosts.
func (s *Store) Peers(ctx context.Context) ([]bothy.ClusterHost, error) {
	return s.listHosts(ctx, `0`, `'{}'`)
}

func (s *Store) listHosts(ctx context.Context, sandboxes, processor string) ([]bothy.ClusterHost, error) {
	return list(ctx, s, "list hosts", `SELECT id, address, CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN wish = 'leaving' THEN 'draining' ELSE wish END, epoch, labels, joined,
			extract(epoch FROM until - clock_timestamp())::float8, figures, `+sandboxes+`, `+processor+` FROM hosts h ORDER BY id`, nil, func(row pgx.CollectableRow) (h bothy.ClusterHost, err error) {
		var labels, figures, state, processor string
		if err = row.Scan(&h.Name, &h.Address, &state, &h.Epoch, &labels, &h.JoinedAt, &h.LeaseSeconds, &figures, &h.Sandboxes, &processor); err != nil {
			return h, err
		}
		h.State, h.Self = bothy.HostState(state), h.Name == s.member.Name
		var p bothy.HostProcessor
		if err := json.Unmarshal([]byte(processor), &p); err != nil {
			return h, err
		}
		if p.Known() {
			h.Processor = &p
		}
		return h, errors.Join(json.Unmarshal([]byte(labels), &h.Labels), json.Unmarshal([]byte(figures), &h.HostFigures))
	})
}

// leaving is the wish for a host that drains until it is restarted.
const leaving = "leaving"

// UpdateHost implements store.Hosts.
func (s *Store) UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) error {
	wish := string(u.State)
	if u.State == bothy.HostDraining && u.UntilRestart {
		wish = leaving
	}
	n, err := s.change(ctx, "change a host", whole, do(`UPDATE hosts SET wish = $2 WHERE id = $1`, name, wish))
	if err == nil && name == s.member.Name {
		s.wanted.Store(&wish)
	}
	if err == nil && n == 0 {
		err = noHost(name)
	}
	return err
}

func noHost(name string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no host %q", name).WithHint("`bothy host ls` lists them.")
}

// RemoveHost implements store.Hosts.
func (s *Store) RemoveHost(ctx context.Context, name string) error {
	return s.transaction(ctx, "remove a host", once, func(ctx context.Context, tx pgx.Tx) error {
		var dead bool
		var sandboxes int
		err := tx.QueryRow(ctx, `SELECT dead_at IS NOT NULL, (SELECT count(*) FROM sandboxes WHERE host = $1 AND state NOT IN ('stopped', 'failed'))
			FROM hosts WHERE id = $1 FOR UPDATE`, name).Scan(&dead, &sandboxes)
		if errors.Is(err, pgx.ErrNoRows) {
			return noHost(name)
		}
		if err != nil {
			return err
		}
		if !dead {
			return bothy.Errorf(bothy.CodeConflict, "the host %s is not dead", name).
				WithHint("Stop its server with `bothy down` there, unless it has stopped; the others give it up %d seconds later.", int(restartTime.Seconds()))
		}
		if sandboxes > 0 {
			return bothy.Errorf(bothy.CodeConflict, "%d paused sandboxes have their snapshots only on the host %s", sandboxes, name).
				WithHint("Start the host again, or delete these sandboxes.")
		}
		_, err = tx.Exec(ctx, `DELETE FROM hosts WHERE id = $1`, name)
		return err
	})
}

const ownership = `SELECT coalesce(h.id, ''), coalesce(h.address, ''), coalesce(h.dead_at IS NOT NULL, false), `

func scanOwnership(row pgx.CollectableRow) (o store.Ownership, err error) {
	var state string
	err = row.Scan(&o.Host, &o.Address, &o.Dead, &state)
	o.Sandbox = bothy.State(state)
	return o, err
}

// SandboxHost implements store.Hosts.
func (s *Store) SandboxHost(ctx context.Context, id string) (store.Ownership, error) {
	o, found, err := first(ctx, s, "find the host of a sandbox", ownership+`s.state FROM sandboxes s LEFT JOIN hosts h ON h.id = s.host WHERE s.id = $1`,
		[]any{id}, scanOwnership)
	if err == nil && !found {
		return o, bothy.NoSandbox(id)
	}
	return o, err
}

// SnapshotHost implements store.Hosts.
func (s *Store) SnapshotHost(ctx context.Context, id string) (sandbox string, o store.Ownership, err error) {
	type found struct {
		sandbox string
		store.Ownership
	}
	f, ok, err := first(ctx, s, "find the host of a snapshot", `SELECT n.sandbox_id, coalesce(h.id, ''), coalesce(h.address, ''), coalesce(h.dead_at IS NOT NULL, false), coalesce(s.state, '')
		FROM snapshots n LEFT JOIN sandboxes s ON s.id = n.sandbox_id
		LEFT JOIN hosts h ON h.id = CASE WHEN s.state IS NULL OR s.state IN ('stopped', 'failed') THEN n.host ELSE s.host END WHERE n.id = $1`,
		[]any{id}, func(row pgx.CollectableRow) (f found, err error) {
			var state string
			err = row.Scan(&f.sandbox, &f.Host, &f.Address, &f.Dead, &state)
			f.Sandbox = bothy.State(state)
			return f, err
		})
	if err == nil && !ok {
		err = bothy.NoSnapshot(id)
	}
	return f.sandbox, f.Ownership, err
}

// ClaimSandbox implements store.Hosts.
func (s *Store) ClaimSandbox(ctx context.Context, id string) (claimed bool, err error) {
	err = s.transaction(ctx, "claim a sandbox", once, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE sandboxes SET host = $2, host_epoch = $3, version = version + 1 WHERE id = $1
			AND (host = '' OR state IN ('stopped', 'failed') AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = sandboxes.host AND dead_at IS NULL))`, id, s.member.Name, s.lease.epoch)
		if claimed = err == nil && tag.RowsAffected() == 1; !claimed {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE snapshots SET host = $2 WHERE sandbox_id = $1`, id, s.member.Name)
		return err
	})
	return claimed && err == nil, err
}

// ClaimDead implements store.Hosts. The lock keeps the host from coming back meanwhile.
func (s *Store) ClaimDead(ctx context.Context, id string) (bool, error) {
	n, err := s.change(ctx, "claim a sandbox of a dead host", once, do(`UPDATE sandboxes SET host = $2, host_epoch = $3, version = version + 1 WHERE id = $1 AND state = 'paused'
		AND EXISTS (SELECT 1 FROM hosts h WHERE h.id = sandboxes.host AND dead_at IS NOT NULL FOR SHARE)`, id, s.member.Name, s.lease.epoch))
	return err == nil && n == 1, err
}

// ReleaseSandbox implements store.Hosts.
func (s *Store) ReleaseSandbox(ctx context.Context, sb *store.Sandbox) error {
	text, err := record.EncodeSandbox(sb)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, "release a sandbox", once,
		do(`SELECT host_owns($1, $2)`, s.lease.epoch, sb.ID),
		do(`UPDATE snapshots SET host = '' WHERE sandbox_id = $1`, sb.ID),
		do(`WITH written AS (UPDATE sandboxes SET state = $2, record = $3, resume_at = $4::bigint + `+databaseNow+`, host = '', host_epoch = 0, version = version + 1
			WHERE id = $1 AND version = $5::bigint RETURNING 1) `+orConflict, sb.ID, string(sb.State), text, s.resumeIn(sb), sb.Version))
	if err = refused(sb.ID, sb.Version, err); err == nil {
		sb.Version++
	}
	return err
}

// TakeSandbox implements store.Hosts.
func (s *Store) TakeSandbox(ctx context.Context, from string, epoch int64, sb *store.Sandbox) (taken bool, err error) {
	after := *sb
	after.Moving = ""
	text, err := record.EncodeSandbox(&after)
	if err != nil {
		return false, err
	}
	err = s.transaction(ctx, "take a sandbox", once, func(ctx context.Context, tx pgx.Tx) error {
		taken = false
		var before string
		var version int64
		err := tx.QueryRow(ctx, `SELECT record, version FROM sandboxes WHERE id = $1 AND host = $2 AND host_epoch = $3 FOR UPDATE`, sb.ID, from, epoch).Scan(&before, &version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		row, err := record.DecodeSandbox(before, version)
		if err != nil || sb.Moving == "" || row.Moving != sb.Moving || row.Version != sb.Version {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE sandboxes SET state = $2, record = $3, host = $4, host_epoch = $5, resume_at = $6::bigint + `+databaseNow+`, version = version + 1 WHERE id = $1`,
			clean([]any{sb.ID, string(sb.State), text, s.member.Name, s.lease.epoch, s.resumeIn(&after)})...)
		b.Queue(`UPDATE snapshots SET host = $2 WHERE sandbox_id = $1`, sb.ID, s.member.Name)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		taken = true
		return nil
	})
	if taken = taken && err == nil; taken {
		sb.Version++
	}
	return taken, err
}

// LiveOf implements store.Hosts.
func (s *Store) LiveOf(ctx context.Context, project string) (int, error) {
	n, _, err := first(ctx, s, "count sandboxes", `SELECT count(*) FROM sandboxes WHERE project = $1 AND host <> $2 AND NOT pooled
		AND state IN ('starting', 'running', 'pausing', 'resuming', 'stopping')`, []any{project, s.member.Name}, pgx.RowTo[int])
	return n, err
}

// LiveByHost implements store.Hosts.
func (s *Store) LiveByHost(ctx context.Context, project string) (map[string]int, error) {
	type row struct {
		Host  string
		Count int
	}
	rows, err := list(ctx, s, "count sandboxes by host", `SELECT host, count(*) FROM sandboxes WHERE project = $1 AND NOT pooled
		AND state IN ('starting', 'running', 'pausing', 'resuming', 'stopping') GROUP BY host`, []any{project}, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, r := range rows {
		counts[r.Host] = r.Count
	}
	return counts, nil
}

// TakeDuty implements store.Hosts.
func (s *Store) TakeDuty(ctx context.Context, name string) (bool, error) {
	n, err := s.change(ctx, "take a duty", whole, do(`INSERT INTO host_duties (name, epoch) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch WHERE host_duties.epoch = excluded.epoch
		OR NOT EXISTS (SELECT 1 FROM hosts WHERE hosts.epoch = host_duties.epoch AND dead_at IS NULL)`, name, s.lease.epoch))
	return n == 1, err
}

// DutyHost implements store.Hosts.
func (s *Store) DutyHost(ctx context.Context, name string) (store.Ownership, error) {
	o, _, err := first(ctx, s, "find who has a duty", ownership+`'' FROM host_duties d JOIN hosts h ON h.epoch = d.epoch WHERE d.name = $1`, []any{name}, scanOwnership)
	return o, err
}

// Authority implements store.Hosts.
func (s *Store) Authority(ctx context.Context, make func() (string, []byte, error)) (certificate string, sealed []byte, err error) {
	err = s.transaction(ctx, "read the hosts' authority", once, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(openingLock)); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT certificate, sealed_key FROM host_authority`).Scan(&certificate, &sealed)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if certificate, sealed, err = make(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO host_authority VALUES (1, $1, $2)`, certificate, sealed)
		return err
	})
	return certificate, sealed, err
}

// AddHostToken implements store.Hosts.
func (s *Store) AddHostToken(ctx context.Context, hash string, life time.Duration) error {
	_, err := s.change(ctx, "add a token for a host", whole,
		do(`DELETE FROM host_tokens WHERE expires < clock_timestamp()`),
		do(`INSERT INTO host_tokens VALUES ($1, clock_timestamp() + make_interval(secs => $2)) ON CONFLICT DO NOTHING`, hash, life.Seconds()))
	return err
}

// UseHostToken implements store.Hosts.
func (s *Store) UseHostToken(ctx context.Context, hash string) (bool, error) {
	n, err := s.change(ctx, "use a token for a host", once, do(`DELETE FROM host_tokens WHERE hash = $1 AND expires > clock_timestamp()`, hash))
	return n == 1, err
}

// GiveUpHosts implements store.Hosts.
func (s *Store) GiveUpHosts(ctx context.Context, grace time.Duration, fate store.Fate) (done []store.HostGivenUp, err error) {
	const overdue = `dead_at IS NULL AND epoch <> $1 AND until + make_interval(secs => $2) < clock_timestamp()`
	late, err := list(ctx, s, "find dead hosts", `SELECT id, epoch FROM hosts WHERE `+overdue, []any{s.lease.epoch, grace.Seconds()},
		func(row pgx.CollectableRow) (b store.HostGivenUp, err error) { return b, row.Scan(&b.Host, &b.Epoch) })
	for _, b := range late {
		gaveUp := false
		terr := s.transaction(ctx, "give a host up", large, func(ctx context.Context, tx pgx.Tx) error {
			gaveUp, b.Freed, b.Kept, b.Ended, b.Paused = false, 0, 0, 0, 0
			// The lock waits for changes that the host has begun, and fences off later ones.
			err := tx.QueryRow(ctx, `SELECT true FROM hosts WHERE id = $3 AND epoch = $4 AND `+overdue+` FOR UPDATE`,
				s.lease.epoch, grace.Seconds(), b.Host, b.Epoch).Scan(&gaveUp)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			return s.giveUp(ctx, tx, &b, fate)
		})
		if terr == nil && gaveUp {
			done = append(done, b)
		}
		err = errors.Join(err, terr)
	}
	return done, err
}
