package lifecycle

import (
	"context"
	"time"
)

// WaitingFor counts the holders of and waiters for a sandbox's lock.
func (s *Service) WaitingFor(id string) int {
	return s.ledger.LockUsers(id)
}

// Ran reports whether a sandbox's interpreters count as user processes.
func (s *Service) Ran(id string) bool {
	return s.instance(id).CodeRan()
}

// ResumeDue is one round of ResumeLost.
func (s *Service) ResumeDue(ctx context.Context, o LostOptions) error { return s.resumeDue(ctx, o) }

// ResumeAttempts and ResumePause are the number of attempts and the pause after each.
const ResumeAttempts = resumeAttempts

// CheckpointSoon is the delay before another attempt at a checkpoint.
const CheckpointSoon = checkpointSoon

func ResumePause(attempts int) time.Duration { return resumePause(attempts) }
