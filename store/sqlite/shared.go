package sqlite

import (
	"context"
	"fmt"
)

// ForgetTemplateNames forgets all names of templates: a server that is alone has them in its
// folder. They are here only on their way from one database to another.
func (s *Store) ForgetTemplateNames(ctx context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.fast.ExecContext(ctx, `DELETE FROM template_names`); err != nil {
		return fmt.Errorf("store: forget names of templates: %w", err)
	}
	return nil
}
