package lifecycle

import (
	"context"
	"time"
)

// WaitingFor counts who hold the lock of a sandbox or wait for it.
func (s *Service) WaitingFor(id string) int {
	return s.ledger.LockUsers(id)
}

// Ran reports whether the interpreters of a sandbox count as its user's.
func (s *Service) Ran(id string) bool {
	return s.instance(id).CodeRan()
}

// ResumeDue is one look of ResumeLost.
func (s *Service) ResumeDue(ctx context.Context, o LostOptions) error { return s.resumeDue(ctx, o) }

// ResumeAttempts and ResumePause are how often it is tried, and how long is waited.
const ResumeAttempts = resumeAttempts

// CheckpointSoon is when a checkpoint is tried again that could not be taken yet.
const CheckpointSoon = checkpointSoon

func ResumePause(attempts int) time.Duration { return resumePause(attempts) }
