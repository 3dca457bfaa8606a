package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/usage"
)

// Hours are packed once they are over, into the pack of their day. When the day is over, its
// sums are packed into the month's, and likewise for months. A pack that must be made, or
// remade because of late usage, is listed in usage_unpacked. Until it is made, queries read its
// rows instead, so no result depends on the progress of packing.

// The grains of packs.
const (
	grainHour  = "hour" // the hours of a day
	grainDay   = "day"
	grainMonth = "month"
)

// packsPerStep limits the duration of a step.
const packsPerStep = 16

// nothingPacked is before any usage.
const nothingPacked = math.MinInt64 / 2

// packed is the hour up to which packs exist.
func (w *usageWriter) packed() (int64, error) {
	v, err := w.state(statePacked)
	if err != nil || v == "" {
		return nothingPacked, err
	}
	return strconv.ParseInt(v, 10, 64)
}

// packed is the same for readers.
func (s *Store) packed(ctx context.Context) (hour int64, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT value FROM usage_state WHERE name = ?`, statePacked).Scan(&hour)
	if errors.Is(err, sql.ErrNoRows) {
		return nothingPacked, nil
	}
	return hour, err
}

// PackUsage implements store.Usage.
func (s *Store) PackUsage(ctx context.Context, before int64) (more bool, err error) {
	s.packing.Lock()
	defer s.packing.Unlock()
	due, err := s.unpacked(ctx)
	var packed int64
	if err == nil && len(due) == 0 {
		packed, err = s.packed(ctx)
	}
	if err == nil && len(due) == 0 && packed < before {
		if more, err = s.packUpTo(ctx, before); more && err == nil {
			due, err = s.unpacked(ctx)
		}
	}
	for _, d := range due {
		if err == nil {
			err = s.makePack(ctx, d)
		}
	}
	if err != nil {
		return false, fmt.Errorf("store: pack usage: %w", err)
	}
	return more || len(due) > 0, nil
}

// unpacked is a pack that must be made.
type unpacked struct {
	packAt
	version int64
}

func (s *Store) unpacked(ctx context.Context) (list []unpacked, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT grain, at, project, version FROM usage_unpacked ORDER BY at LIMIT ?`, packsPerStep)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var u unpacked
		if err := rows.Scan(&u.grain, &u.at, &u.project, &u.version); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, rows.Err()
}

// packUpTo marks the hours up to before, or up to the end of a day if that is earlier, for
// packing.
func (s *Store) packUpTo(ctx context.Context, before int64) (more bool, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.fast.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	w := usageWriter{ctx: ctx, tx: tx, u: &s.usage}
	from, err := w.packed()
	if err != nil || from >= before {
		return false, err
	}
	var first, last sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT (SELECT min(hour) FROM usage_hour_totals WHERE project = ?1), (SELECT max(hour) FROM usage_hour_totals WHERE project = ?1)`, everybody).
		Scan(&first, &last)
	from, before = max(from, first.Int64), min(before, last.Int64+1)
	if err != nil || !first.Valid || from >= before {
		return false, err
	}
	day := floorDiv(from, hoursPerDay)
	to := min(before, (day+1)*hoursPerDay)
	due := []packAt{{grain: grainHour, at: day}}
	if to == (day+1)*hoursPerDay {
		due = append(due, packAt{grain: grainDay, at: day})
		if monthOf(day+1) != monthOf(day) {
			due = append(due, packAt{grain: grainMonth, at: monthOf(day)})
		}
	}
	for _, d := range due {
		if _, err := tx.ExecContext(ctx, `INSERT INTO usage_unpacked SELECT ?, ?, name, 1 FROM usage_projects WHERE true ON CONFLICT DO UPDATE SET version = version + 1`, d.grain, d.at); err != nil {
			return false, err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM usage_packs WHERE grain = ? AND at = ?`, d.grain, d.at); err != nil {
			return false, err
		}
	}
	w.exec(s.usage.putState, statePacked, strconv.FormatInt(to, 10))
	if w.err == nil {
		w.err = tx.Commit()
	}
	return true, w.err
}

// makePack makes a pack. If its rows change meanwhile, it stays marked.
func (s *Store) makePack(ctx context.Context, u unpacked) error {
	packed, err := s.packed(ctx)
	if err != nil {
		return err
	}
	c := cell{grain: u.grain, at: u.at}
	switch c.from, c.to = u.at, u.at+1; u.grain {
	case grainHour:
		c.from, c.to = u.at*hoursPerDay, min((u.at+1)*hoursPerDay, packed)
	case grainMonth:
		c.from, c.to = dayOf(u.at), dayOf(u.at+1)
	}
	records, err := s.records(ctx, c, u.project)
	if err != nil {
		return err
	}
	made := packsOf(c, u.project, records)
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.fast.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	r, err := tx.ExecContext(ctx, `DELETE FROM usage_unpacked WHERE grain = ? AND at = ? AND project = ? AND version = ?`, u.grain, u.at, u.project, u.version)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if _, err := tx.StmtContext(ctx, s.usage.dropPack).ExecContext(ctx, u.grain, u.at, u.project); err != nil {
		return err
	}
	for _, p := range made {
		for part, data := range p.parts {
			if _, err := tx.ExecContext(ctx, `INSERT INTO usage_packs (grain, at, project, chunk, part, first, last, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
				u.grain, u.at, u.project, p.chunk, part, p.first, p.last, data); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// dropPack marks a damaged pack to be remade.
func (s *Store) dropPack(ctx context.Context, p packAt) error {
	s.write.Lock()
	defer s.write.Unlock()
	tx, err := s.fast.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	w := usageWriter{ctx: ctx, tx: tx, u: &s.usage}
	w.unpack(p)
	if w.err == nil {
		w.err = tx.Commit()
	}
	return w.err
}

// unpack marks a pack to be remade.
func (w *usageWriter) unpack(p packAt) {
	w.exec(w.u.dropPack, p.grain, p.at, p.project)
	w.exec(w.u.unpack, p.grain, p.at, p.project)
}

// digestChunk is the number of the chunk with the sums of a month, for queries that do not
// select a sandbox. A part with the content elsewhere stands for one that only the other chunks
// have.
const digestChunk = -1

var elsewhere = []byte{0}

// storedChunk is a chunk as stored, with its first and last sandbox.
type storedChunk struct {
	chunk       int
	first, last string
	parts       map[string][]byte
}

// packsOf makes the chunks of a pack.
func packsOf(c cell, project string, records []usage.Record) (list []storedChunk) {
	if len(records) == 0 {
		return nil
	}
	if c.grain == grainHour {
		return []storedChunk{{parts: usage.PackRecords(project, records, true).Parts()}}
	}
	if c.grain == grainMonth {
		d := storedChunk{chunk: digestChunk, parts: map[string][]byte{usage.PartCounts: elsewhere}}
		if sums, left := usage.Digest(records); 4*len(sums) <= len(records) {
			d.parts = usage.PackRecords(project, sums, false).Parts()
			for _, label := range left {
				d.parts[usage.PartLabel+label] = elsewhere
			}
		}
		list = append(list, d)
	}
	for i, chunk := range usage.Chunks(records) {
		list = append(list, storedChunk{i, chunk[0].Sandbox, chunk[len(chunk)-1].Sandbox, usage.PackRecords(project, chunk, false).Parts()})
	}
	return list
}

// records reads the rows of hours or days, summing up those of a month.
func (s *Store) records(ctx context.Context, c cell, project string) ([]usage.Record, error) {
	text := `SELECT t.day - ?, k.template, k.sandbox, k.labels, ` + meters + `
		FROM usage_days t JOIN usage_keys k ON k.id = t.key WHERE t.project = ? AND t.day >= ? AND t.day < ?`
	switch c.grain {
	case grainHour:
		text = strings.NewReplacer("t.day", "t.hour", "usage_days", "usage_hours").Replace(text)
	case grainMonth:
		text = strings.Replace(text, meters, sums(""), 1) + " GROUP BY t.key"
	}
	rows, err := s.read.QueryContext(ctx, text, c.from, project, c.from, c.to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var made usage.Packer
	var after int64
	var template, sandbox, labels string
	var n store.Counts
	into := append([]any{&after, &template, &sandbox, &labels}, scanCounts(&n)...)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		if err := made.Add(after, template, sandbox, labels, n); err != nil {
			return nil, err
		}
	}
	return made.Records, rows.Err()
}
