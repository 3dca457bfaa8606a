package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// markEvery is how often the mark is updated.
const markEvery = time.Minute

// mark records outside the database the last id of its audit log. The audit survives a power
// cut and only grows, so a database whose audit ends before the mark has lost records or is an
// older copy.
type mark struct {
	path string
	last int64
	read int64 // the last id that this server has read
}

type markFile struct {
	AuditID int64 `json:"audit_id"`
}

// openMark compares the mark with the audit's last id, and returns how many records are
// missing.
func openMark(path string, last int64) (*mark, int64) {
	var f markFile
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &f) != nil {
		return &mark{path: path}, 0 // first start, or upgraded from a version without marks
	}
	return &mark{path: path, last: f.AuditID}, max(0, f.AuditID-last)
}

// move updates the mark to the audit's last id.
func (m *mark) move(last int64) error {
	if last == m.last {
		return nil
	}
	b, err := json.Marshal(markFile{last})
	if err != nil {
		return err
	}
	draft := m.path + ".new"
	err = os.WriteFile(draft, b, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(m.path), 0o700); err == nil {
			err = os.WriteFile(draft, b, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(draft, m.path)
	}
	if err == nil {
		m.last = last
	}
	return err
}

// watchMark checks whether the database has lost records, and keeps the mark up to date.
func (s *Server) watchMark(ctx context.Context) error {
	ends, err := s.store.AuditEnds(ctx)
	if err != nil {
		return err
	}
	m, missing := openMark(filepath.Join(RegisterFolder(s.config), "database"), ends.LastID)
	s.missing.Store(missing)
	if missing > 0 {
		s.log.Error("the database has lost records: it was damaged, or an older copy was restored. Nothing is deleted until the next start; if this is not intended, restore a backup", "audit_records", missing)
	}
	m.read = ends.LastID
	move := func() {
		if err := s.moveMark(context.Background(), m); err != nil {
			s.log.Warn("cannot update the database's mark", "error", err)
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(markEvery)
		defer t.Stop()
		for {
			select {
			case <-stop:
				move()
				return
			case <-t.C:
				move()
			}
		}
	}()
	s.undo.Add(func() { close(stop); <-done })
	return nil
}

// moveMark updates the mark, unless the running server's database has lost records: then it
// stays, so that the next start says so too.
func (s *Server) moveMark(ctx context.Context, m *mark) error {
	ends, err := s.store.AuditEnds(ctx)
	if err != nil {
		return err
	}
	missing := m.read - ends.LastID
	if missing <= 0 {
		m.read = ends.LastID
		return m.move(ends.LastID)
	}
	if s.missing.Swap(max(missing, s.missing.Load())) == 0 {
		s.log.Error("the database has lost records while this server was running: an older copy was restored, or it failed over to one. Nothing is deleted until the next start; stop all servers before a backup is restored", "audit_records", missing)
	}
	return nil
}

// doubtful reports whether the database has lost records: then nothing is deleted that it does
// not know.
func (s *Server) doubtful() bool { return s.missing.Load() > 0 }
