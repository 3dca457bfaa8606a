package lifecycle

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
)

// watchIdle arms the timer that pauses an idle sandbox, or disarms it.
func (s *Service) watchIdle(l *live, seconds int) {
	idle := time.Duration(seconds) * time.Second
	l.setIdle(func() (stop func() bool) {
		if seconds <= 0 {
			return nil
		}
		return s.clock.AfterFunc(idle, func() { s.checkIdle(l, idle) })
	})
}

// checkIdle pauses a sandbox that has been idle for long enough, and otherwise
// looks again when that could be.
func (s *Service) checkIdle(l *live, idle time.Duration) {
	ctx, cancel := context.WithTimeout(s.background, 30*time.Second)
	defer cancel()
	if s.liveByID(l.id) != l {
		return
	}
	_, since := s.machines.look(ctx, l)
	left := idle - s.clock.Now().Sub(since)
	if left <= 0 {
		if err := s.pauseIdle(context.WithoutCancel(ctx), l, idle); err == nil {
			return
		} else if s.background.Err() == nil {
			s.log.Warn("cannot pause an idle sandbox", "sandbox", l.id, "error", err)
		}
		left = idle
	}
	l.setIdleAgain(func() (stop func() bool) {
		// Not less than a second, so that a CPU reading means something.
		return s.clock.AfterFunc(max(left, time.Second), func() { s.checkIdle(l, idle) })
	})
}

func (s *Service) pauseIdle(ctx context.Context, l *live, idle time.Duration) error {
	unlock, err := s.ledger.LockToWork(ctx, l.id)
	if err != nil {
		return err
	}
	defer unlock()
	if s.liveByID(l.id) != l || !l.use.fallIdle(s.clock.Now(), idle) {
		return nil
	}
	_, err = s.pauseLocked(ctx, l.id, bothy.PauseOptions{})
	if err != nil {
		l.use.stayUp()
	}
	return err
}

// Metrics tells what a sandbox uses. To look does not wake it.
func (s *Service) Metrics(ctx context.Context, id string) (*bothy.Metrics, error) {
	sb, err := s.ledger.Find(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	l := s.liveByID(id)
	if l == nil {
		return nil, s.wrongState(sb)
	}
	st, err := l.machine.Stats(ctx)
	if err != nil {
		if e := s.whyGone(ctx, l); e != nil {
			return nil, e
		}
		return nil, err
	}
	m := &bothy.Metrics{
		Time: s.clock.Now().UTC(), CPUCount: l.limits.CPU, CPUSeconds: st.CPUSeconds,
		MemoryBytes: st.MemoryBytes, MemoryLimitBytes: st.MemoryLimitBytes,
		DiskLimitBytes: st.DiskLimitBytes, NetworkCounters: l.gateway.Counters(),
	}
	if g, err := s.machines.guestStats(ctx, l); err == nil {
		m.Processes, m.DiskBytes = g.Processes, g.DiskUsedBytes
	}
	holders, since := s.machines.look(ctx, l)
	m.HeldAwakeBy = holders
	if len(holders) == 0 {
		m.IdleForSeconds = s.clock.Now().Sub(since).Seconds()
	}
	return m, nil
}
