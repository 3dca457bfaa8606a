package lifecycle

import (
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestShortLogEntriesAreNotFree collects an output that arrives a byte at a time.
func TestShortLogEntriesAreNotFree(t *testing.T) {
	c := &logCollector{logs: &bothy.Logs{}}
	for i := range maxLogBytes {
		c.add(bothy.LogEntry{Data: "x", Offset: int64(i)})
	}
	if n := len(c.logs.Items); n > maxLogBytes/logEntrySize || n == 0 || !c.logs.Truncated || c.logs.Items[n-1].Offset != maxLogBytes-1 {
		t.Errorf("%d entries, truncated %v", n, c.logs.Truncated)
	}
}
