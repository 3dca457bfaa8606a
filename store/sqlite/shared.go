package sqlite

import (
	"context"
	"fmt"
)

// ForgetTemplateNames deletes all template names: a server without a cluster has them in its
// folder. They are here only after a transfer from another database.
func (s *Store) ForgetTemplateNames(ctx context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.fast.ExecContext(ctx, `DELETE FROM template_names`); err != nil {
		return fmt.Errorf("store: forget names of templates: %w", err)
	}
	return nil
}
