package e2b

import (
	"encoding/base64"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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
// time one millisecond after the previous one, starting at the sandbox's creation.
func (d *Door) logOf(r *http.Request) ([]logEntry, error) {
	sb, err := d.found(r.Context(), d.id(r))
	if err != nil {
		return nil, err
	}
	list := []logEntry{}
	if stateOf(sb.State) != "running" {
		return list, nil
	}
	logs, err := d.Logs.Logs(r.Context(), sb.ID, 0)
	if err != nil {
		return nil, err
	}
	started := d.listedOf(sb).StartedAt
	for _, e := range logs.Items {
		text := e.Data
		if b, err := base64.StdEncoding.DecodeString(text); e.Encoding == "base64" && err == nil {
			text = strings.ToValidUTF8(string(b), "\uFFFD")
		}
		level := "info"
		if e.Stream == "stderr" {
			level = "error"
		}
		for line := range strings.Lines(text) {
			list = append(list, logEntry{
				Timestamp: started.Add(time.Duration(len(list)) * time.Millisecond), Message: strings.TrimRight(line, "\r\n"), Level: level,
				Fields: map[string]string{"pid": strconv.Itoa(e.PID), "stream": e.Stream},
			})
		}
	}
	return list, nil
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
	entries, err := d.logOf(r)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e logEntry) bool { return e.Timestamp.UnixMilli() < int64(from) })
	entries = entries[:min(limit, len(entries))]
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
	entries, err := d.logOf(r)
	if err != nil {
		return err
	}
	beyond := func(e logEntry) bool {
		at := e.Timestamp.UnixMilli()
		return cursor >= 0 && (direction == "backward" && at > int64(cursor) || direction != "backward" && at < int64(cursor))
	}
	entries = slices.DeleteFunc(entries, func(e logEntry) bool {
		return beyond(e) || !strings.Contains(e.Message, q.Get("search")) || slices.Index(levels, e.Level) < slices.Index(levels, least)
	})
	if direction == "backward" {
		slices.Reverse(entries)
	}
	return reply(w, http.StatusOK, map[string]any{"logs": entries[:min(limit, len(entries))]})
}
