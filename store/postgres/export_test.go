package postgres

import "context"

// Sees asks the database something.
func (s *Store) Sees(ctx context.Context, text string, into any) error {
	return s.pool.QueryRow(ctx, text).Scan(into)
}
