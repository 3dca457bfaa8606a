package confined

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
)

// What passes between the two processes: first the arguments, then how much memory the request
// takes (or gives back, if negative), each of which is answered with one byte.
const (
	// maxArgs limits the arguments, and maxComplaint what a process says when it fails.
	maxArgs, maxComplaint = 16 << 20, 8 << 10
	granted               = 1
)

// settle is the server's end. It returns an error if memory is refused.
func settle(ctx context.Context, c net.Conn, args []string, most int64) error {
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := binary.Write(c, binary.BigEndian, int64(len(text))); err != nil {
		return nil // it has ended, and says why
	}
	if _, err := c.Write(text); err != nil {
		return nil
	}
	held := int64(0)
	defer func() { bothy.GiveMemory(ctx, held) }()
	for {
		var n int64
		if binary.Read(c, binary.BigEndian, &n) != nil {
			return nil
		}
		switch {
		case n < -held || n > most-held:
			return errors.New("a process that parses asked for more memory than it can have")
		case n < 0:
			bothy.GiveMemory(ctx, -n)
		default:
			if err := bothy.TakeMemory(ctx, n); err != nil {
				return err
			}
		}
		held += n
		if _, err := c.Write([]byte{granted}); err != nil {
			return nil
		}
	}
}

// An account takes memory from the server, which answers for the request.
type account struct {
	mu sync.Mutex
	c  io.ReadWriter
}

// greet reads the arguments.
func (a *account) greet() (args []string, err error) {
	var n int64
	if err := binary.Read(a.c, binary.BigEndian, &n); err != nil {
		return nil, err
	}
	if n < 0 || n > maxArgs {
		return nil, &bounded.Error{Limit: maxArgs, What: "bytes of arguments"}
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(a.c, text); err != nil {
		return nil, err
	}
	return args, json.Unmarshal(text, &args)
}

// Hold implements bothy.MemoryAccount. If it is refused, the server ends this process.
func (a *account) Hold(_ context.Context, n int64) error { return a.say(n) }

// Give implements bothy.MemoryAccount.
func (a *account) Give(n int64) { _ = a.say(-n) }

func (a *account) say(n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := binary.Write(a.c, binary.BigEndian, n); err != nil {
		return err
	}
	_, err := io.ReadFull(a.c, make([]byte, 1))
	return err
}

// A failure is the error of a task, as its process prints it.
type failure struct {
	Text  string
	Limit *bounded.Error `json:",omitempty"`
	Code  bothy.Code     `json:",omitempty"`
	Hint  string         `json:",omitempty"`
}

// explain prints an error for understand.
func explain(err error) []byte {
	f := failure{Text: err.Error()}
	if limit, ok := errors.AsType[*bounded.Error](err); ok {
		f.Limit = limit
	}
	if refused, ok := errors.AsType[*bothy.Error](err); ok {
		f.Text, f.Code, f.Hint = refused.Detail, refused.Code, refused.Hint
	}
	f.Text = f.Text[:min(len(f.Text), maxComplaint/4)] // control characters take up to six times as much
	text, _ := json.Marshal(f)
	if len(text) > maxComplaint {
		text, _ = json.Marshal(failure{Text: "it failed", Limit: f.Limit, Code: f.Code})
	}
	return text
}

// understand returns the error that a process has printed, or nil if that is none.
func understand(text []byte) error {
	var f failure
	limits := bounded.JSONLimits{Bytes: maxComplaint, Depth: 3, Values: 20}
	if bounded.JSON(context.Background(), bytes.NewReader(text), &f, limits) != nil || f.Text == "" {
		return nil
	}
	var cause error
	if f.Limit != nil {
		cause = f.Limit
	}
	if f.Code == "" {
		return &said{f.Text, cause}
	}
	refused := bothy.Errorf(f.Code, "%s", f.Text)
	if f.Hint != "" {
		refused = refused.WithHint("%s", f.Hint)
	}
	if cause != nil {
		refused = refused.Because(cause)
	}
	return refused
}

// said is an error with the words of a process.
type said struct {
	text  string
	cause error
}

func (s *said) Error() string { return s.text }
func (s *said) Unwrap() error { return s.cause }
