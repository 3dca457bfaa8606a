package microvm

import (
	"context"
	"encoding/json"
	"time"
)

// watchEvents looks for a machine that QEMU has stopped because the host's disk is full. It
// retries for a while, and then ends the machine.
func (m *Machine) watchEvents() {
	ctx, cancel := m.bound(context.Background(), time.Duration(1<<62))
	defer cancel()
	q, err := dialQMP(ctx, m.dir+"/"+eventsSocket)
	if err != nil {
		return
	}
	defer q.Close()
	var since, last time.Time
	for {
		name, data, err := q.event(ctx)
		if err != nil {
			return
		}
		var e struct {
			Action  string `json:"action"`
			NoSpace bool   `json:"nospace"`
		}
		if name != "BLOCK_IO_ERROR" || json.Unmarshal(data, &e) != nil || !e.NoSpace || e.Action != "stop" {
			continue
		}
		now := time.Now()
		if now.Sub(last) > 2*diskAgain {
			since = now
			m.e.log.Warn("a machine waits for space on the host's disk", "sandbox", m.id)
		}
		last = now
		if now.Sub(since) >= m.e.o.DiskPatience {
			m.mu.Lock()
			m.diskFull = true
			m.mu.Unlock()
			_ = m.proc.Kill()
			return
		}
		select {
		case <-time.After(diskAgain):
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		paused := m.paused
		m.mu.Unlock()
		if !paused { // else it retries by itself when it continues
			_, _ = q.do(ctx, "cont", nil)
		}
	}
}

// diskAgain is how long to wait before a machine retries its write.
const diskAgain = 500 * time.Millisecond
