package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// processIDHeader contains the terminal's process in the answer that upgrades the connection.
const processIDHeader = "X-Process-Id"

type terminalInput struct {
	ID      string `path:"id" doc:"The sandbox's id."`
	Command string `query:"command" doc:"A line for the shell; an interactive login shell when empty."`
	Cwd     string `query:"cwd" doc:"Where the command starts."`
	User    string `query:"user" doc:"Who runs it."`
	Cols    int    `query:"cols" minimum:"1" maximum:"1000" default:"80" doc:"The width of the window."`
	Rows    int    `query:"rows" minimum:"1" maximum:"1000" default:"24" doc:"The height of the window."`
	Process int    `query:"process" minimum:"1" doc:"Join the terminal of this process instead of opening one."`
	From    int64  `query:"from" minimum:"0" doc:"When joining: the byte offset in its output to begin at; what is held may begin later."`

	Keep bool `query:"keep" doc:"Leave it running when the connection ends, to be joined at any time. Its process then has the tag kept, and ends by itself or by a signal."`

	Announce bool `query:"announce" doc:"Begin with a text frame {\"process\": PID}, for browsers, which do not expose the headers of the answer to the upgrade."`

	env map[string]string
}

// Resolve implements huma.Resolver.
func (in *terminalInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	in.env = map[string]string{}
	return dotted(u.Query(), "env", in.env, "command", "cwd", "user", "cols", "rows", "process", "from", "keep", "announce")
}

// resizeFrame is the text frame that a caller sends when its window changes.
type resizeFrame struct {
	Resize *struct {
		Cols int `json:"cols"`
		Rows int `json:"rows"`
	} `json:"resize"`
}

func (s *handlers) registerTerminal() {
	if s.services.Exec == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "terminal", Audit: true, Method: http.MethodGet, Path: "/v1/sandboxes/{id}/terminal", Tag: "Commands",
		Summary: "Open a terminal", Scope: bothy.ScopeSandboxesWrite, AnyQuery: true, Status: http.StatusSwitchingProtocols,
		Text: "A WebSocket. Binary frames are the terminal's bytes, both ways. A text frame `{\"resize\":{\"cols\":80,\"rows\":24}}` " +
			"changes the window. When the process ends, the server closes with code 1000 and the reason `{\"exit_code\":0}`. " +
			"The answer to the upgrade names the process in X-Process-Id. Closing the socket hangs up. " +
			"When the connection breaks without a close frame, the terminal stays for a minute: open it again with `process` and, " +
			"to get what was missed, `from`, the number of bytes received so far. " +
			"When the key is revoked or expires, the server hangs up and closes with code 1008 and the reason. " +
			"With `keep`, nothing hangs up: the terminal stays, also when the server restarts. The list of processes names those that stay, with the tag `kept`.",
		Parameters: []*huma.Param{{
			Name: "env.NAME", In: "query", Schema: &huma.Schema{Type: "string"},
			Description: "An environment variable. May be given for several names.",
		}},
	}, func(_ context.Context, in *terminalInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) { s.serveTerminal(w, r, in) }), nil
	})
}

func (s *handlers) serveTerminal(w http.ResponseWriter, r *http.Request, in *terminalInput) {
	if r.Header.Get("Upgrade") == "" {
		s.Fail(w, r, middleware.NeedsSocket("Use a WebSocket client, `bothy sh`, or an SDK's terminal."))
		return
	}
	req := bothy.TerminalRequest{Cwd: in.Cwd, Env: in.env, User: in.User, Cols: in.Cols, Rows: in.Rows, Process: in.Process, From: in.From, Keep: in.Keep}
	req.Command.Line = in.Command
	term, err := s.services.Exec.Terminal(r.Context(), in.ID, req)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	defer term.Close()
	s.detached.join(in.ID, term.PID()) // not before the service has found that the caller may
	w.Header().Set(processIDHeader, strconv.Itoa(term.PID()))
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer s.Upgraded()()
	if in.Announce {
		_ = conn.Write(r.Context(), websocket.MessageText, fmt.Appendf(nil, `{"process":%d}`, term.PID()))
	}
	ctx, cancel := s.Following(r.Context())
	defer cancel()
	// The end of a key also ends the process, whose end may be noticed first.
	ended, broke := serveTerm(ctx, conn, term)
	if ended && middleware.EndedBy(ctx) == nil {
		closeWithExitCode(conn, term)
		return
	}
	left, ok := term.(bothy.Detacher)
	if ok && broke && ctx.Err() == nil && !in.Keep {
		s.detach(r.Context(), in.ID, term)
		_ = conn.CloseNow()
		return
	}
	// Nothing typed from here on arrives.
	if ok && in.Keep {
		_ = left.Detach()
	} else {
		_ = term.Close()
	}
	s.Leave(ctx, conn)
}

// serveTerm moves bytes until the process ends, the caller leaves, or ctx ends. It reports
// whether the process ended, and whether the connection broke without being closed. Reads and
// writes use no context: when one ends, it cuts the connection in the middle of a frame, and the
// caller should still get a reason.
func serveTerm(ctx context.Context, conn *websocket.Conn, term bothy.Terminal) (ended, broke bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn.SetReadLimit(middleware.MaxFrame)
	output := make(chan error, 1)
	go func() { output <- copyOutput(conn, term) }()
	input := make(chan error, 1)
	go func() { input <- copyInput(conn, term) }()
	go middleware.PingUntilGone(ctx, conn, cancel)
	select {
	case err := <-output:
		return errors.Is(err, io.EOF), true
	case err := <-input:
		return false, websocket.CloseStatus(err) == -1 && !errors.Is(err, errUnknownFrame)
	case <-ctx.Done(): // ended by pingUntilGone, unless the caller's own ended
		return false, true
	}
}

// copyOutput returns io.EOF when the terminal has no more output.
func copyOutput(conn *websocket.Conn, term bothy.Terminal) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := term.Read(buf)
		if n > 0 {
			if err := conn.Write(context.Background(), websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return io.EOF // a PTY ends with EIO, a stream with EOF
		}
	}
}

var errUnknownFrame = errors.New("unknown text frame")

// copyInput returns when the caller has disconnected. Input to an ended process
// is dropped: the output reports the end.
func copyInput(conn *websocket.Conn, term bothy.Terminal) error {
	for {
		kind, data, err := conn.Read(context.Background())
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			_, _ = term.Write(data)
			continue
		}
		var f resizeFrame
		if err := json.Unmarshal(data, &f); err != nil || f.Resize == nil {
			_ = conn.Close(websocket.StatusUnsupportedData, "a text frame must be {\"resize\":{\"cols\":80,\"rows\":24}}")
			return errUnknownFrame
		}
		_ = term.Resize(f.Resize.Cols, f.Resize.Rows)
	}
}

func closeWithExitCode(conn *websocket.Conn, term bothy.Terminal) {
	code, err := term.Wait()
	if err != nil {
		_ = conn.Close(websocket.StatusInternalError, "the terminal was lost")
		return
	}
	_ = conn.Close(websocket.StatusNormalClosure, fmt.Sprintf(`{"exit_code":%d}`, code))
}
