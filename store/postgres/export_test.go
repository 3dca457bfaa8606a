package postgres

import "context"

// Sees asks the database something.
func (s *Store) Sees(ctx context.Context, text string, into any) error {
	return s.pool.QueryRow(ctx, text).Scan(into)
}

// Renew renews the lease now.
func (s *Store) Renew(ctx context.Context) error {
	_, err := s.renew(ctx)
	return err
}
