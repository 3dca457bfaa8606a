package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// AddLogin implements store.Store.
func (s *Store) AddLogin(ctx context.Context, l *store.Login, b store.LoginBounds) error {
	_, err := s.exec(ctx, "add login", s.stmt.addLogin, l.Hash, l.ProjectID, l.TokenID, l.Code, nanos(l.CreatedAt), nanos(l.ExpiresAt))
	if err == nil {
		_, err = s.exec(ctx, "forget logins", s.stmt.boundLogins, l.Code, nanos(l.CreatedAt), l.TokenID, b.PerToken, b.All)
	}
	return err
}

// Login implements store.Store.
func (s *Store) Login(ctx context.Context, hash string) (*store.Login, error) {
	return scanLogin(hash, s.stmt.login.QueryRowContext(ctx, hash))
}

// TakeLogin implements store.Store.
func (s *Store) TakeLogin(ctx context.Context, hash string) (*store.Login, error) {
	s.write.Lock()
	defer s.write.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("store: take login: %w", err)
	}
	l, err := scanLogin(hash, s.stmt.takeLogin.QueryRowContext(context.WithoutCancel(ctx), hash))
	if err != nil && bothy.ErrorCode(err) != bothy.CodeNotFound {
		return nil, s.fault("take login", err)
	}
	return l, err
}

func scanLogin(hash string, row *sql.Row) (*store.Login, error) {
	l := &store.Login{Hash: hash}
	var created, expires int64
	err := row.Scan(&l.ProjectID, &l.TokenID, &l.Code, &created, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no such login")
	}
	if err != nil {
		return nil, fmt.Errorf("store: get login: %w", err)
	}
	l.CreatedAt, l.ExpiresAt = time.Unix(0, created).UTC(), time.Unix(0, expires).UTC()
	return l, nil
}

// HaveLogins implements store.Store.
func (s *Store) HaveLogins(ctx context.Context, hashes []string) (known []string, err error) {
	for _, hash := range hashes {
		_, err := s.Login(ctx, hash)
		switch bothy.ErrorCode(err) {
		case "":
			known = append(known, hash)
		case bothy.CodeNotFound:
		default:
			return nil, err
		}
	}
	return known, nil
}

// DeleteLogin implements store.Store.
func (s *Store) DeleteLogin(ctx context.Context, hash string) error {
	_, err := s.execReserved(ctx, "delete login", s.stmt.deleteLogin, hash)
	return err
}
