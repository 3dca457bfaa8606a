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

// markEvery is how often the mark is brought up to date.
const markEvery = time.Minute

// mark records, apart from the database, how far its audit had come. The audit survives a power
// cut and only grows, so a database that is behind its mark has lost something, or is
// an older one.
type mark struct {
	path string
	last int64
}

type markFile struct {
	AuditID int64 `json:"audit_id"`
}

// openMark compares a mark with the audit's last record, and returns how many records
// are missing.
func openMark(path string, last int64) (*mark, int64) {
	var f markFile
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &f) != nil {
		return &mark{path: path}, 0 // a first start, or an earlier version
	}
	return &mark{path: path, last: f.AuditID}, max(0, f.AuditID-last)
}

// move moves the mark to the audit's last record.
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

// watchMark finds out whether the database has lost something, and keeps its mark.
func (s *Server) watchMark(ctx context.Context) error {
	ends, err := s.store.AuditEnds(ctx)
	if err != nil {
		return err
	}
	m, missing := openMark(filepath.Join(RegisterFolder(s.config), "database"), ends.LastID)
	if s.missing = missing; missing > 0 {
		s.log.Error("the database lacks records that it had: it was damaged, or is an older one. Nothing is removed until the next start; restore a backup if this is not meant", "audit_records", missing)
	}
	move := func() {
		ends, err := s.store.AuditEnds(context.Background())
		if err == nil {
			err = m.move(ends.LastID)
		}
		if err != nil {
			s.log.Warn("cannot keep the database's mark", "error", err)
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
