package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy/store"
)

const (
	// answerLife is how long a stored answer is good for.
	answerLife = 24 * time.Hour
	// forgetEvery is how often old answers are deleted.
	forgetEvery = time.Minute
)

// ReserveAnswer implements store.Store.
func (s *Store) ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*store.Answer, error) {
	now := s.now()
	if since := now.Sub(time.Unix(0, s.forgot.Load())); since < 0 || since >= forgetEvery {
		if err := s.forgetOldAnswers(ctx, now); err != nil {
			return nil, err
		}
	}
	for {
		n, err := s.execCount(ctx, "reserve answer", s.stmt.reserve, projectID, key, fingerprint, nanos(now))
		if err != nil || n == 1 {
			return nil, err
		}
		a, err := s.answer(ctx, projectID, key)
		switch {
		case err == nil && a.CreatedAt.Before(now.Add(-answerLife)):
			if err := s.forgetOldAnswers(ctx, now); err != nil {
				return nil, err
			}
		case !errors.Is(err, sql.ErrNoRows):
			return a, err
		}
		// It was freed between the two statements, or is too old.
	}
}

func (s *Store) forgetOldAnswers(ctx context.Context, now time.Time) error {
	_, err := s.exec(ctx, "forget old answers", s.stmt.forgetOldAnswers, nanos(now.Add(-answerLife)))
	if err == nil {
		s.forgot.Store(nanos(now))
	}
	return err
}

func (s *Store) answer(ctx context.Context, projectID, key string) (*store.Answer, error) {
	var a store.Answer
	var created int64
	var header string
	err := s.stmt.answer.QueryRowContext(ctx, projectID, key).Scan(&a.Fingerprint, &created, &a.Status, &header, &a.Body)
	if err != nil {
		return nil, fmt.Errorf("store: get answer: %w", err)
	}
	a.CreatedAt = time.Unix(0, created).UTC()
	if err := json.Unmarshal([]byte(header), &a.Header); err != nil {
		return nil, fmt.Errorf("store: get answer: %w", err)
	}
	return &a, nil
}

// StoreAnswer implements store.Store.
func (s *Store) StoreAnswer(ctx context.Context, projectID, key string, a store.Answer) error {
	header, err := json.Marshal(a.Header)
	if err != nil {
		return fmt.Errorf("store: store answer: %w", err)
	}
	n, err := s.execCount(ctx, "store answer", s.stmt.storeAnswer, a.Status, string(header), a.Body, projectID, key)
	if err == nil && n == 0 {
		return fmt.Errorf("store: store answer: the key is not reserved")
	}
	return err
}

// ForgetAnswer implements store.Store.
func (s *Store) ForgetAnswer(ctx context.Context, projectID, key string) error {
	_, err := s.exec(ctx, "forget answer", s.stmt.forgetAnswer, projectID, key)
	return err
}

func (s *Store) forgetReservations(ctx context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.fast.ExecContext(ctx, `DELETE FROM answers WHERE status = 0`); err != nil {
		return fmt.Errorf("store: forget reservations: %w", err)
	}
	return nil
}
