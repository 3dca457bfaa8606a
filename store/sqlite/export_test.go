package sqlite

import "fmt"

// Bound bounds the pages that the connections which write may use.
func Bound(s *Store, pages int) error {
	if _, err := s.fast.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
		return err
	}
	_, err := s.durable.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	return err
}

// SyncedOnly refuses what is written without a sync.
func SyncedOnly(s *Store) error {
	_, err := s.fast.Exec("PRAGMA query_only = 1")
	return err
}

// RoomToMap is the check of the disk before a database is opened.
var RoomToMap = roomToMap
