package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// script is an agent and its folders, in memory. What it does is kept in order.
type script struct {
	out   *io.PipeReader
	speak *io.PipeWriter
	heard chan string
	err   error // with which the agent ends

	mu   sync.Mutex
	done []string
	fail map[string]error
}

func (s *script) did(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, what)
	return s.fail[what]
}

func (s *script) Send(_ context.Context, p []byte) error {
	for line := range strings.Lines(string(p)) {
		_ = s.did("agent hears " + method(line))
		s.heard <- strings.TrimSpace(line)
	}
	return nil
}

func method(line string) string {
	m, err := parse([]byte(line))
	if err != nil {
		return err.Error()
	}
	return m.method + m.id
}

func (s *script) Follow(ctx context.Context, out func([]byte) error) error {
	defer context.AfterFunc(ctx, func() { s.speak.CloseWithError(ctx.Err()) })()
	buf := make([]byte, 7) // in pieces
	for {
		n, err := s.out.Read(buf)
		if outErr := out(buf[:n]); outErr != nil {
			return outErr
		}
		if err == io.EOF {
			return s.err
		}
		if err != nil {
			return err
		}
	}
}

func (s *script) Open(_ context.Context, dir string) error { return s.did("open " + dir) }
func (s *script) Sync(context.Context) error               { return s.did("sync") }
func (s *script) Allow(path string, write bool) error {
	if !strings.HasPrefix(path, "/here/") || write && strings.HasSuffix(path, "hook") {
		return errors.New("it is not in the project")
	}
	return nil
}
func (s *script) ToAgent(path string) (string, bool)  { return swap(path, "/here", "/there") }
func (s *script) ToEditor(path string) (string, bool) { return swap(path, "/there", "/here") }

func swap(path, from, to string) (string, bool) {
	rest, ok := strings.CutPrefix(path, from)
	return to + rest, ok
}

// stage is a relay with an editor and an agent that the test plays.
type stage struct {
	*testing.T
	*script
	relay  *Relay
	notes  []string
	editor *io.PipeWriter
	shown  *bufio.Reader
	ended  chan error
}

func newStage(t *testing.T) *stage {
	out, speak := io.Pipe()
	in, editor := io.Pipe()
	shown, show := io.Pipe()
	s := &stage{
		T: t, script: &script{out: out, speak: speak, heard: make(chan string, 100), fail: map[string]error{}},
		editor: editor, shown: bufio.NewReader(shown), ended: make(chan error, 1),
	}
	s.relay = &Relay{Agent: s.script, Folders: s.script, Note: func(format string, args ...any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notes = append(s.notes, fmt.Sprintf(format, args...))
	}}
	go func() {
		s.ended <- s.relay.Run(t.Context(), in, show)
		show.Close()
	}()
	return s
}

func (s *stage) editorSays(text string) {
	s.Helper()
	if _, err := io.WriteString(s.editor, text+"\n"); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) agentSays(text string) {
	s.Helper()
	if _, err := io.WriteString(s.speak, text+"\n"); err != nil {
		s.Fatal(err)
	}
}

// same compares JSON.
func (s *stage) same(got, want string) {
	s.Helper()
	var g, w any
	if err := errors.Join(json.Unmarshal([]byte(got), &g), json.Unmarshal([]byte(want), &w)); err != nil {
		s.Fatalf("%v: %s", err, got)
	}
	a, _ := json.Marshal(g)
	b, _ := json.Marshal(w)
	if string(a) != string(b) {
		s.Errorf("got  %s\nwant %s", a, b)
	}
}

func (s *stage) agentHears(want string) { s.Helper(); s.same(<-s.heard, want) }

func (s *stage) editorSees(want string) {
	s.Helper()
	line, err := s.shown.ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	s.same(line, want)
}

func (s *stage) order(want ...string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.done, want) {
		s.Errorf("it did %q, want %q", s.done, want)
	}
	s.done = nil
}

func TestMessagesPassWithAllThatTheyHold(t *testing.T) {
	s := newStage(t)
	s.editorSays(`{"jsonrpc":"2.0","id":9007199254740993,"method":"_x/y","params":{"n":9007199254740993,"u":"ü<\u2028"}}`)
	s.agentHears(`{"jsonrpc":"2.0","id":9007199254740993,"method":"_x/y","params":{"n":9007199254740993,"u":"ü<\u2028"}}`)
	s.agentSays(`{"jsonrpc":"2.0","id":9007199254740993,"result":null,"_extra":[1]}`)
	s.editorSees(`{"jsonrpc":"2.0","id":9007199254740993,"result":null,"_extra":[1]}`)
	if s.relay.Waiting() != 0 {
		t.Error("something is waited for")
	}
	s.agentSays("not JSON\n[1]\n")
	s.agentSays(`{"jsonrpc":"2.0","method":"session/update","params":{}}`)
	s.editorSees(`{"jsonrpc":"2.0","method":"session/update","params":{}}`)
	s.editor.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if len(s.notes) != 2 {
		t.Errorf("notes: %q", s.notes)
	}
}

func TestFoldersAreCarriedBeforeAndAfter(t *testing.T) {
	s := newStage(t)
	s.editorSays(`{"id":1,"method":"session/new","params":{"cwd":"/here","additionalDirectories":["/also"],"mcpServers":[]}}`)
	s.agentHears(`{"id":1,"method":"session/new","params":{"cwd":"/there","additionalDirectories":["/also"],"mcpServers":[]}}`)
	s.agentSays(`{"id":1,"result":{"sessionId":"s"}}`)
	s.editorSees(`{"id":1,"result":{"sessionId":"s"}}`)
	s.order("open /here", "open /also", "agent hears session/new1")

	s.editorSays(`{"id":2,"method":"session/prompt","params":{"prompt":[{"type":"resource_link","uri":"file:///here/a b"},{"type":"text","text":"/here/x"}]}}`)
	s.agentHears(`{"id":2,"method":"session/prompt","params":{"prompt":[{"type":"resource_link","uri":"file:///there/a b"},{"type":"text","text":"/here/x"}]}}`)
	s.agentSays(`{"id":2,"result":{"stopReason":"end_turn"}}`)
	s.editorSees(`{"id":2,"result":{"stopReason":"end_turn"}}`)
	s.order("sync", "agent hears session/prompt2", "sync")

	s.mu.Lock()
	s.fail["open /bad"] = errors.New("it is no project")
	s.fail["sync"] = errors.New("the disk is full")
	s.mu.Unlock()
	s.editorSays(`{"id":"a","method":"session/load","params":{"cwd":"/bad"}}`)
	s.editorSees(`{"jsonrpc":"2.0","id":"a","error":{"code":-32602,"message":"it is no project"}}`)
	s.editorSays(`{"id":3,"method":"session/prompt","params":{}}`)
	s.editorSees(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the folder could not be carried into the sandbox: the disk is full"}}`)
	s.order("open /bad", "sync")
	s.editor.Close()
	<-s.ended
}

func TestAnAgentsRequestsAreLookedAt(t *testing.T) {
	s := newStage(t)
	s.agentSays(`{"id":0,"method":"fs/write_text_file","params":{"path":"/there/hook"}}`)
	if got := <-s.heard; !strings.Contains(got, "is not in the project") {
		t.Error(got)
	}
	for _, path := range []string{"/etc/passwd", "relative", "", "/here"} {
		s.agentSays(`{"id":1,"method":"fs/read_text_file","params":{"path":"` + path + `"}}`)
		if got := <-s.heard; !strings.Contains(got, "is not in the project") {
			t.Errorf("%s: %s", path, got)
		}
	}
	s.agentSays(`{"id":2,"method":"terminal/create","params":{"command":"id"}}`)
	if got := <-s.heard; !strings.Contains(got, "-32601") {
		t.Error(got)
	}
	// Of two equal names only the one that was looked at is passed on.
	s.agentSays(`{"id":3,"method":"fs/read_text_file","params":{"path":"/etc/passwd","path":"/there/x"}}`)
	s.editorSees(`{"id":3,"method":"fs/read_text_file","params":{"path":"/here/x"}}`)
	s.agentSays(`{"id":4,"method":"fs/write_text_file","params":{"path":"/here/x","content":"c"}}`)
	s.editorSees(`{"id":4,"method":"fs/write_text_file","params":{"path":"/here/x","content":"c"}}`)
	s.mu.Lock()
	s.done = nil
	s.mu.Unlock()
	s.editorSays(`{"id":4,"result":{}}`)
	s.agentHears(`{"id":4,"result":{}}`)
	s.order("sync", "agent hears 4")
	s.editor.Close()
	<-s.ended
}

func TestCapabilitiesOfTheEditorsHostAreLeftOut(t *testing.T) {
	s := newStage(t)
	s.editorSays(`{"id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true,"auth":{"terminal":true,"x":1},"_meta":{"terminal-auth":true,"y":2}}}}`)
	s.agentHears(`{"id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"auth":{"x":1},"_meta":{"y":2}}}}`)
	s.editorSays(`{"id":2,"method":"session/new","params":{"cwd":"/here","mcpServers":[{"name":"a","command":"/bin/a"},{"name":"b","type":"http","url":"u"}]}}`)
	s.agentHears(`{"id":2,"method":"session/new","params":{"cwd":"/there","mcpServers":[{"name":"b","type":"http","url":"u"}]}}`)
	s.editor.Close()
	<-s.ended
	if len(s.notes) != 1 || !strings.Contains(s.notes[0], `"a"`) {
		t.Errorf("notes: %q", s.notes)
	}
}

func TestOpenRequestsAreAnsweredWhenTheAgentEnds(t *testing.T) {
	s := newStage(t)
	s.err = &Ended{Code: 2, Stderr: "out of luck"}
	s.editorSays(`{"id":1,"method":"session/prompt","params":{}}`)
	<-s.heard
	s.speak.Close()
	s.editorSees(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the agent ended with exit code 2: out of luck"}}`)
	var ended *Ended
	if err := <-s.ended; !errors.As(err, &ended) {
		t.Error(err)
	}
}

func TestALineWithoutAnEndIsNotKept(t *testing.T) {
	l := lines{each: func([]byte) {}}
	piece := make([]byte, 1<<20)
	for range maxLine >> 20 {
		if err := l.write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.write(piece); err == nil {
		t.Error("it was kept")
	}
}

func TestRefuse(t *testing.T) {
	var out strings.Builder
	Refuse(strings.NewReader("junk\n{\"method\":\"note\"}\n{\"id\":\"x\",\"method\":\"initialize\"}\n"), &out, "there is no server")
	if want := `{"error":{"code":-32603,"message":"there is no server"},"id":"x","jsonrpc":"2.0"}` + "\n"; out.String() != want {
		t.Errorf("%s", out.String())
	}
	Refuse(strings.NewReader(""), &out, "")
}
