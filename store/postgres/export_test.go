package postgres

import "context"

// Sees asks the database something.
func (s *Store) Sees(ctx context.Context, text string, into any) error {
	return s.pool.QueryRow(ctx, text).Scan(into)
}

// Fault is what a caller gets for an error of the driver.
func (s *Store) Fault(err error) error { return s.fault("test", err) }

// Renew renews the lease now.
func (s *Store) Renew(ctx context.Context) error {
	_, err := s.renew(ctx)
	return err
}
