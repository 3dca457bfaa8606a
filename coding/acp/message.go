package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// object is a JSON object of which only some fields are known.
type object map[string]json.RawMessage

// message is a JSON-RPC message, with the fields that it came with.
type message struct {
	fields object
	id     string // as it was written; "" in a notification
	method string // "" in a response
}

// parse parses a line. Other parsers may treat duplicate keys differently, so messages that
// matter are re-encoded.
func parse(line []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(line, &m.fields); err != nil || m.fields == nil {
		return nil, fmt.Errorf("it is not a JSON object")
	}
	if raw, ok := m.fields["id"]; ok {
		var short bytes.Buffer
		if err := json.Compact(&short, raw); err != nil {
			return nil, err
		}
		m.id = short.String()
	}
	if raw, ok := m.fields["method"]; ok {
		if err := json.Unmarshal(raw, &m.method); err != nil {
			return nil, fmt.Errorf("its method is not a string")
		}
	}
	return &m, nil
}

func (m *message) request() bool  { return m.method != "" && m.id != "" }
func (m *message) response() bool { return m.method == "" && m.id != "" }

// params are the message's, or an empty object.
func (m *message) params() object {
	var p object
	if json.Unmarshal(m.fields["params"], &p) != nil || p == nil {
		return object{}
	}
	return p
}

func (m *message) line() []byte {
	b, err := json.Marshal(m.fields)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return b
}

// text returns a field that is a string, or "".
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o[name], &s)
	return s
}

// in returns a field that is an object, or an empty one.
func (o object) in(name string) object {
	var in object
	if json.Unmarshal(o[name], &in) != nil || in == nil {
		return object{}
	}
	return in
}

func (o object) set(name string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // of our own making
	}
	o[name] = b
}

// Codes of JSON-RPC.
const (
	codeNoMethod = -32601
	codeParams   = -32602
	codeInternal = -32603
)

// failure is the response that says why a request failed.
func failure(id string, code int, why string) []byte {
	type problem struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	m := message{fields: object{"jsonrpc": json.RawMessage(`"2.0"`), "id": json.RawMessage(id)}}
	m.fields.set("error", problem{code, why})
	return m.line()
}

// lines splits arriving data into lines.
type lines struct {
	rest []byte
	each func(line []byte)
}

// maxLine limits a message: an endless line would fill this host's memory.
const maxLine = 64 << 20

func (l *lines) write(p []byte) error {
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		line := p[:i]
		if len(l.rest) > 0 {
			line = append(l.rest, line...)
		}
		l.rest = l.rest[:0]
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.each(bytes.Clone(line))
		}
		p = p[i+1:]
	}
	if len(l.rest)+len(p) > maxLine {
		return fmt.Errorf("a message has more than %d bytes", maxLine)
	}
	l.rest = append(l.rest, p...)
	return nil
}
