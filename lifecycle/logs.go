package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy"
)

// maxLogBytes limits one response. Each entry counts as so much more than its text.
const (
	maxLogBytes  = 4 << 20
	logEntrySize = 128
)

var errEnough = errors.New("enough")

// Logs returns the output that a sandbox still has.
func (s *Service) Logs(ctx context.Context, id string, pid int) (*bothy.Logs, error) {
	return get(ctx, s, id, bothy.ScopeSandboxesRead, func(g bothy.Guest) (*bothy.Logs, error) {
		processes, err := g.Processes(ctx)
		if err != nil {
			return nil, err
		}
		c := &logCollector{logs: &bothy.Logs{Items: []bothy.LogEntry{}}}
		found := pid == 0
		for _, p := range processes {
			if pid != 0 && p.PID != pid {
				continue
			}
			found = true
			if err := c.collect(ctx, g, p); err != nil {
				return nil, err
			}
		}
		if !found {
			return nil, bothy.Errorf(bothy.CodeProcessNotFound, "sandbox %s has no output of process %d", id, pid).
				WithHint("`bothy ps` lists the processes.")
		}
		return c.logs, nil
	})
}

type logCollector struct {
	logs *bothy.Logs
	size int
}

// collect adds a process's output so far, without waiting for more.
func (c *logCollector) collect(ctx context.Context, g bothy.Guest, p bothy.ProcessInfo) error {
	c.logs.Truncated = c.logs.Truncated || p.OutputStart > 0
	if p.OutputEnd <= p.OutputStart {
		return nil
	}
	err := g.Output(ctx, p.PID, p.OutputStart, func(e bothy.ExecEvent) error {
		if e.IsFinal {
			return errEnough
		}
		if e.Data != "" {
			c.add(bothy.LogEntry{PID: p.PID, Stream: e.Stream, Data: e.Data, Encoding: e.Encoding, Offset: e.Offset})
		}
		if e.Offset+int64(len(e.Data)) >= p.OutputEnd {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || bothy.ErrorCode(err) == bothy.CodeProcessNotFound {
		return nil
	}
	return err
}

// add keeps the latest pieces that fit into a response.
func (c *logCollector) add(e bothy.LogEntry) {
	c.logs.Items = append(c.logs.Items, e)
	c.size += len(e.Data) + logEntrySize
	for c.size > maxLogBytes && len(c.logs.Items) > 1 {
		c.size -= len(c.logs.Items[0].Data) + logEntrySize
		c.logs.Items = c.logs.Items[1:]
		c.logs.Truncated = true
	}
}
