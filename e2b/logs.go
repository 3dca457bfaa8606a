package e2b

import (
	"encoding/base64"
	"iter"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// logOf returns the buffered output of the commands in a request's sandbox, by line. Output has
// no timestamps here. So that clients can continue from a line by its time, each line is given a
// time one millisecond after the previous one, starting at the sandbox's creation. There may be
// millions of lines, of which a caller keeps what it shows.
func (d *Door) logOf(r *http.Request) (iter.Seq[logEntry], error) {
	sb, err := d.found(r.Context(), d.id(r))
	if err != nil {
		return nil, err
	}
	logs := &bothy.Logs{}
	if stateOf(sb.State) == "running" {
		if logs, err = d.Logs.Logs(r.Context(), sb.ID, 0); err != nil {
			return nil, err
		}
	}
	started := d.listedOf(sb).StartedAt
	return func(yield func(logEntry) bool) {
		at := started
		for _, e := range logs.Items {
			l := logEntry{Level: "info", Fields: map[string]string{"pid": strconv.Itoa(e.PID), "stream": e.Stream}}
			if e.Stream == "stderr" {
				l.Level = "error"
			}
			for line := range strings.Lines(textOf(e)) {
				l.Timestamp, l.Message = at, strings.TrimRight(line, "\r\n")
				if !yield(l) {
					return
				}
				at = at.Add(time.Millisecond)
			}
		}
	}, nil
}

func textOf(e bothy.LogEntry) string {
	if b, err := base64.StdEncoding.DecodeString(e.Data); e.Encoding == "base64" && err == nil {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return e.Data
}

func (d *Door) logsV1(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r.URL.Query(), "limit", 1000, 0, 10000)
	if err != nil {
		return err
	}
	from, err := number(r.URL.Query(), "start", 0, 0, math.MaxInt)
	if err != nil {
		return err
	}
	all, err := d.logOf(r)
	if err != nil {
		return err
	}
	entries := pageOf(all, limit, false, func(e logEntry) bool { return e.Timestamp.UnixMilli() >= int64(from) })
	lines := make([]logLine, len(entries))
	for i, e := range entries {
		lines[i] = logLine{e.Timestamp, e.Message}
	}
	return reply(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
}

var levels = []string{"debug", "info", "warn", "error"}

func (d *Door) logsV2(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := number(q, "limit", 1000, 0, 1000)
	if err != nil {
		return err
	}
	least := q.Get("level")
	if least != "" && !slices.Contains(levels, least) {
		return invalid("level is %q; give one of %s", least, strings.Join(levels, ", "))
	}
	direction := q.Get("direction")
	if direction != "" && direction != "forward" && direction != "backward" {
		return invalid("direction is %q; give forward or backward", direction)
	}
	cursor, err := number(q, "cursor", -1, 0, math.MaxInt)
	if err != nil {
		return err
	}
	all, err := d.logOf(r)
	if err != nil {
		return err
	}
	backward := direction == "backward"
	within := func(e logEntry) bool {
		at := e.Timestamp.UnixMilli()
		return cursor < 0 || backward && at <= int64(cursor) || !backward && at >= int64(cursor)
	}
	entries := pageOf(all, limit, backward, func(e logEntry) bool {
		return within(e) && strings.Contains(e.Message, q.Get("search")) && slices.Index(levels, e.Level) >= slices.Index(levels, least)
	})
	if backward {
		slices.Reverse(entries)
	}
	return reply(w, http.StatusOK, map[string]any{"logs": entries})
}

// pageOf returns the first, or the last, entries that are wanted, never nil.
func pageOf(all iter.Seq[logEntry], limit int, last bool, want func(logEntry) bool) []logEntry {
	kept, seen := []logEntry{}, 0 // a ring once it is full
	if limit == 0 {
		return kept
	}
	for e := range all {
		switch {
		case !want(e):
			continue
		case len(kept) < limit:
			kept = append(kept, e)
		default:
			kept[seen%limit] = e
		}
		if seen++; seen == limit && !last {
			break
		}
	}
	oldest := 0
	if seen > limit {
		oldest = seen % limit
	}
	return append(append([]logEntry{}, kept[oldest:]...), kept[:oldest]...)
}
