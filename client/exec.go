package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
)

// Exec is the server's bothy.ExecService.
type Exec struct{ conn *conn }

func processPath(id string, pid int, rest string) string {
	return sandboxPath(id, "/processes/", strconv.Itoa(pid), rest)
}

// Exec implements bothy.ExecService.
func (e *Exec) Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	encodeStdin(&req)
	return get[bothy.ExecResult](ctx, e.conn, http.MethodPost, sandboxPath(id, "/exec"), nil, req)
}

// ExecStream implements bothy.ExecService.
func (e *Exec) ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	encodeStdin(&req)
	return e.untilFinal(ctx, http.MethodPost, sandboxPath(id, "/exec"), nil, req, fn)
}

// encodeStdin encodes input that is not text for JSON.
func encodeStdin(req *bothy.ExecRequest) {
	if !utf8.ValidString(req.Stdin) {
		req.Stdin, req.StdinEncoding = base64.StdEncoding.EncodeToString([]byte(req.Stdin)), "base64"
	}
}

// untilFinal reads the events of a command. If they stop before its final event, the connection
// was lost.
func (e *Exec) untilFinal(ctx context.Context, method, path string, q url.Values, in any, fn func(bothy.ExecEvent) error) error {
	final := false
	err := e.conn.events(ctx, method, path, q, in, func(raw json.RawMessage) error {
		ev, err := execEvent(raw)
		if err != nil {
			return e.conn.unreadable(err)
		}
		final = final || ev.IsFinal
		return fn(ev)
	})
	if err == nil && !final {
		return e.conn.brokenOff(ctx, io.ErrUnexpectedEOF)
	}
	return err
}

// execEvent decodes an event of a command. It extracts data without escapes, such as base64,
// first, because it is long and the decoder slow.
func execEvent(raw []byte) (bothy.ExecEvent, error) {
	var ev bothy.ExecEvent
	const key = `"data":"`
	head := bytes.Index(raw[:min(len(raw), 64)], []byte(key)) + len(key)
	if head < len(key) {
		return ev, json.Unmarshal(raw, &ev)
	}
	n := bytes.IndexByte(raw[head:], '"')
	if n < 0 || bytes.IndexByte(raw[head:head+n], '\\') >= 0 {
		return ev, json.Unmarshal(raw, &ev)
	}
	rest := append(append(make([]byte, 0, len(raw)-n), raw[:head]...), raw[head+n:]...)
	err := json.Unmarshal(rest, &ev)
	ev.Data = string(raw[head : head+n])
	return ev, err
}

// Processes implements bothy.ExecService.
func (e *Exec) Processes(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	return items[bothy.ProcessInfo](ctx, e.conn, http.MethodGet, sandboxPath(id, "/processes"), nil, nil)
}

// AllProcesses implements bothy.ExecService.
func (e *Exec) AllProcesses(ctx context.Context, id string) ([]bothy.ProcessInfo, error) {
	return items[bothy.ProcessInfo](ctx, e.conn, http.MethodGet, sandboxPath(id, "/processes"), url.Values{"all": {"true"}}, nil)
}

// Output implements bothy.ExecService.
func (e *Exec) Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error {
	q := url.Values{}
	if from > 0 {
		q.Set("from", strconv.FormatInt(from, 10))
	}
	return e.untilFinal(ctx, http.MethodGet, processPath(id, pid, "/output"), q, nil, fn)
}

// Stdin implements bothy.ExecService.
func (e *Exec) Stdin(ctx context.Context, id string, pid int, data []byte, eof bool) error {
	in := struct {
		Data     string `json:"data,omitempty"`
		Encoding string `json:"encoding,omitempty"`
		EOF      bool   `json:"eof,omitempty"`
	}{Data: string(data), EOF: eof}
	if !utf8.Valid(data) {
		in.Data, in.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return e.conn.call(ctx, http.MethodPost, processPath(id, pid, "/stdin"), nil, in, nil)
}

// Wait implements bothy.ExecService.
func (e *Exec) Wait(ctx context.Context, id string, req bothy.WaitRequest) (*bothy.WaitResult, error) {
	return get[bothy.WaitResult](ctx, e.conn, http.MethodPost, sandboxPath(id, "/wait"), nil, req)
}

// Signal implements bothy.ExecService.
func (e *Exec) Signal(ctx context.Context, id string, pid int, signal int) error {
	in := map[string]int{"signal": signal}
	return e.conn.call(ctx, http.MethodPost, processPath(id, pid, "/signal"), nil, in, nil)
}
