package sqlite

import (
	"context"
	"fmt"
	"strings"
)

// maxDamage limits how many faults Check reports.
const maxDamage = 10

// Check reads the whole database, and returns an error that lists the damage to it.
func (s *Store) Check(ctx context.Context) error {
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf("PRAGMA quick_check(%d)", maxDamage))
	if err != nil {
		return fmt.Errorf("check %s: %w", s.path, err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return fmt.Errorf("check %s: %w", s.path, err)
		}
		found = append(found, line)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("check %s: %w", s.path, err)
	}
	if len(found) == 1 && found[0] == "ok" {
		return nil
	}
	return fmt.Errorf("check %s: %s", s.path, strings.Join(found, "; "))
}
