package agents

import "context"

// memory is a session's memory stores.
type memory struct{}

func (m *memory) readOnly(string) string { return "" }

func (s *session) openMemory(context.Context, piece) error   { return nil }
func (s *session) closeMemory(context.Context)               {}
func (s *session) syncMemory(context.Context)                {}
func (s *session) placeMemory(context.Context, string) error { return nil }
func (s *session) placeSkills(context.Context, string) error { return nil }
