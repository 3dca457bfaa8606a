package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/record"
)

// giveUpAtOnce is how many sandboxes of a dead host one statement changes. It bounds the memory
// that their snapshots take.
const giveUpAtOnce = 500

// giveUp gives up a host whose row is locked.
func (s *Store) giveUp(ctx context.Context, tx pgx.Tx, b *store.HostGivenUp, fate store.Fate) error {
	rows, err := tx.Query(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE host = $1 AND state NOT IN ('stopped', 'failed') FOR UPDATE`, b.Host)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, scanSandbox)
	if err != nil {
		return err
	}
	var events eventRows
	for part := range slices.Chunk(all, giveUpAtOnce) {
		if err := s.giveUpPart(ctx, tx, b, part, fate, &events); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	// It is unknown how long the sandboxes kept running.
	batch.Queue(`DELETE FROM usage_marks WHERE host = $1`, b.Host)
	batch.Queue(`UPDATE hosts SET dead_at = clock_timestamp() WHERE id = $1`, b.Host)
	// The events come last: they make other hosts' events wait for the commit.
	if n := len(events.records); n > 0 {
		batch.Queue(addEvents, clean([]any{int64(n), events.projects, events.times, events.records})...)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// giveUpPart decides about some of a dead host's sandboxes, and stores the result.
func (s *Store) giveUpPart(ctx context.Context, tx pgx.Tx, b *store.HostGivenUp, part []*store.Sandbox, fate store.Fate, events *eventRows) error {
	snapshots, err := s.snapshotsOf(ctx, tx, part)
	if err != nil {
		return err
	}
	var f fates
	for _, sb := range part {
		ran := sb.State == bothy.StateRunning || sb.State == bothy.StatePausing
		free, event := fate(sb, b.Host, func(id string) *bothy.Snapshot { return snapshots[id] })
		if err := errors.Join(f.add(sb, free, s.resumeIn(sb)), events.add(event)); err != nil {
			return err
		}
		if ran && sb.State == bothy.StatePaused {
			b.Paused++
		}
		switch {
		case sb.State.Ended():
			b.Ended++
		case free:
			b.Freed++
		default:
			b.Kept++
		}
	}
	batch := &pgx.Batch{}
	f.queue(batch)
	return tx.SendBatch(ctx, batch).Close()
}

// snapshotsOf returns the snapshots of sandboxes, and those that their records name, by id. They are
// timed: hosts with different clocks may have taken them.
func (s *Store) snapshotsOf(ctx context.Context, tx pgx.Tx, all []*store.Sandbox) (map[string]*bothy.Snapshot, error) {
	ids, named := []string{}, []string{}
	for _, sb := range all {
		ids, named = append(ids, sb.ID), append(named, sb.SnapshotID, sb.HeadSnapshotID)
		if sb.Resumed != nil {
			named = append(named, sb.Resumed.SnapshotID)
		}
		named = append(named, sb.Checkpoints...)
	}
	rows, err := tx.Query(ctx, `SELECT record, `+snapshotAge+` FROM snapshots WHERE sandbox_id = ANY($1::text[])
		UNION ALL SELECT record, `+snapshotAge+` FROM snapshots WHERE id = ANY($2::text[]) AND sandbox_id <> ALL($1::text[])`, clean([]any{ids, named})...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, s.timed)
	byID := make(map[string]*bothy.Snapshot, len(found))
	for _, n := range found {
		byID[n.ID] = n
	}
	return byID, err
}

// fates are the columns of what became of the sandboxes of a dead host.
type fates struct {
	ids, states, records []string
	ended, resume        []*int64
	free                 []bool
	// freed and over are the sandboxes that any host may claim, and those that have ended.
	// checkpoints are those of ended ones, and owners their sandboxes.
	freed, over, checkpoints, owners []string
}

// add notes the fate of a sandbox. resume is when it is due to be resumed, as in resumeIn.
func (f *fates) add(sb *store.Sandbox, free bool, resume *int64) error {
	text, err := record.EncodeSandbox(sb)
	if err != nil {
		return err
	}
	f.ids, f.states, f.records = append(f.ids, sb.ID), append(f.states, string(sb.State)), append(f.records, text)
	f.ended, f.resume, f.free = append(f.ended, endedAt(sb)), append(f.resume, resume), append(f.free, free)
	if free {
		f.freed = append(f.freed, sb.ID)
	}
	if sb.State.Ended() {
		f.over = append(f.over, sb.ID)
		for _, id := range sb.Checkpoints {
			f.checkpoints, f.owners = append(f.checkpoints, id), append(f.owners, sb.ID)
		}
	}
	return nil
}

// queue adds the statements that store the fates.
func (f *fates) queue(b *pgx.Batch) {
	b.Queue(`UPDATE sandboxes s SET state = f.state, ended_at = f.ended, record = f.record, resume_at = f.resume + `+databaseNow+`, host_epoch = 0, version = s.version + 1,
		host = CASE WHEN f.free THEN '' ELSE s.host END
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bool[]) f(id, state, ended, record, resume, free) WHERE s.id = f.id`,
		clean([]any{f.ids, f.states, f.ended, f.records, f.resume, f.free})...)
	if len(f.freed) > 0 {
		b.Queue(`UPDATE snapshots SET host = '' WHERE sandbox_id = ANY($1::text[])`, f.freed)
	}
	if len(f.over) > 0 {
		b.Queue(`DELETE FROM links WHERE sandbox_id = ANY($1::text[])`, f.over)
	}
	if len(f.checkpoints) > 0 {
		// Their files are collected later, once no record names them.
		b.Queue(`DELETE FROM snapshots n USING unnest($1::text[], $2::text[]) c(sandbox, id) WHERE n.id = c.id AND n.sandbox_id = c.sandbox`, f.owners, f.checkpoints)
	}
}

// eventRows are the columns of new events.
type eventRows struct {
	projects, records []string
	times             []int64
}

// add notes an event, if it has a type.
func (r *eventRows) add(e bothy.Event) error {
	if e.Type == "" {
		return nil
	}
	text, err := record.EncodeEvent(&e)
	if err != nil {
		return err
	}
	r.projects, r.records, r.times = append(r.projects, e.ProjectID), append(r.records, text), append(r.times, nanos(e.Time))
	return nil
}
