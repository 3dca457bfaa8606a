package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Agent is a program in a sandbox that speaks the protocol.
type Agent interface {
	// Send writes to its input.
	Send(ctx context.Context, p []byte) error
	// Follow calls out with the agent's output until it has ended, and returns the reason.
	Follow(ctx context.Context, out func(p []byte) error) error
}

// Folders are the project's files, on both sides.
type Folders interface {
	// Open carries a folder in, and keeps it in sync from then on.
	Open(ctx context.Context, dir string) error
	// Sync copies changes in both directions.
	Sync(ctx context.Context) error
	// Allow says why the agent may not have the editor read or write a file of this host.
	Allow(path string, write bool) error
	// ToAgent and ToEditor translate a path in an open folder.
	ToAgent(path string) (string, bool)
	ToEditor(path string) (string, bool)
}

// Relay passes messages between an editor and an agent.
type Relay struct {
	Agent   Agent
	Folders Folders
	// Note is called with messages for the user.
	Note func(format string, args ...any)

	writing sync.Mutex
	out     io.Writer

	mu sync.Mutex
	// asked are the editor's unanswered requests, by id, and asking the agent's.
	asked, asking map[string]*message
	// ended is why no messages are passed on any more.
	ended error
}

// Run passes messages on until the editor closes in, which returns nil, or the agent ends.
// Requests that are open then are answered with the reason.
func (r *Relay) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	r.out, r.asked, r.asking = out, map[string]*message{}, map[string]*message{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hungUp := make(chan error, 1)
	go func() {
		err := r.fromEditor(ctx, in)
		hungUp <- err
		cancel()
	}()
	split := lines{each: func(line []byte) { r.fromAgent(ctx, line) }}
	err := r.Agent.Follow(ctx, split.write)
	select {
	case editorErr := <-hungUp: // first, so that leaving the agent is not taken for its end
		if editorErr == nil {
			return nil
		}
		err = editorErr
	default:
	}
	r.end(err)
	return err
}

// end answers all requests of the editor that are still open.
func (r *Relay) end(err error) {
	r.mu.Lock()
	open := slices.Sorted(maps.Keys(r.asked))
	clear(r.asked)
	r.ended = err
	r.mu.Unlock()
	for _, id := range open {
		r.toEditor(failure(id, codeInternal, err.Error()))
	}
}

// Refuse answers a request on in with an error, for an agent that cannot be started, so that the
// editor shows what is wrong. It returns after the first one.
func Refuse(in io.Reader, out io.Writer, why string) {
	reader := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if m, parseErr := parse(line); parseErr == nil && m.request() {
			_, _ = out.Write(append(failure(m.id, codeInternal, why), '\n'))
			return
		}
		if err != nil {
			return
		}
	}
}

// toEditor writes a line. If the editor has gone, in is closed, which is where that is noticed.
func (r *Relay) toEditor(line []byte) {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, _ = r.out.Write(append(line, '\n'))
}

func (r *Relay) toAgent(ctx context.Context, line []byte) error {
	return r.Agent.Send(ctx, append(line, '\n'))
}

// fromEditor reads the editor's messages. They keep their order.
func (r *Relay) fromEditor(ctx context.Context, in io.Reader) error {
	var failed error
	split := lines{each: func(line []byte) {
		if failed == nil {
			failed = r.editorSays(ctx, line)
		}
	}}
	buf := make([]byte, 1<<16)
	for {
		n, err := in.Read(buf)
		if splitErr := split.write(buf[:n]); splitErr != nil {
			return fmt.Errorf("the editor: %w", splitErr)
		}
		if failed != nil {
			return failed
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read what the editor says: %w", err)
		}
	}
}

// editorSays passes a line on. It fails only if the agent cannot be reached.
func (r *Relay) editorSays(ctx context.Context, line []byte) error {
	m, err := parse(line)
	if err != nil {
		r.Note("left out a line of the editor: %v", err)
		return nil
	}
	if m.request() {
		if ended := r.ask(m); ended != nil {
			r.toEditor(failure(m.id, codeInternal, ended.Error()))
			return nil
		}
		if code, err := r.prepare(ctx, m); err != nil {
			r.answered(m.id)
			r.toEditor(failure(m.id, code, err.Error()))
			return nil
		}
	}
	if m.response() {
		r.editorAnswers(ctx, m)
	}
	for _, part := range []string{"params", "result"} {
		if raw, ok := m.fields[part]; ok {
			m.fields[part] = translate(raw, r.Folders.ToAgent)
		}
	}
	return r.toAgent(ctx, m.line())
}

// ask records a request, or says why it will not be answered.
func (r *Relay) ask(m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.asked[m.id] = m
	}
	return r.ended
}

func (r *Relay) answered(id string) *message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.asked[id]
	delete(r.asked, id)
	return m
}

// Waiting is the number of the editor's unanswered requests.
func (r *Relay) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// prepare does what has to be done before the agent gets a request.
func (r *Relay) prepare(ctx context.Context, m *message) (code int, err error) {
	p := m.params()
	switch m.method {
	case "initialize":
		p.set("clientCapabilities", agentCapabilities(p.in("clientCapabilities")))
	case "session/new", "session/load", "session/resume", "session/fork":
		if err := r.open(ctx, p); err != nil {
			return codeParams, err
		}
		r.keepReachable(p)
	case "session/prompt":
		if err := r.Folders.Sync(ctx); err != nil {
			return codeInternal, fmt.Errorf("the folder could not be carried into the sandbox: %w", err)
		}
		return 0, nil
	default:
		return 0, nil
	}
	m.fields.set("params", p)
	return 0, nil
}

// agentCapabilities are an editor's without its terminals, which an agent in a sandbox cannot
// use: they run commands on the editor's side.
func agentCapabilities(c object) object {
	delete(c, "terminal")
	auth := c.in("auth")
	delete(auth, "terminal")
	if _, ok := c["auth"]; ok {
		c.set("auth", auth)
	}
	meta := c.in("_meta")
	delete(meta, "terminal-auth")
	if _, ok := c["_meta"]; ok {
		c.set("_meta", meta)
	}
	return c
}

// open carries in the folders of a session.
func (r *Relay) open(ctx context.Context, p object) error {
	var more []string
	_ = json.Unmarshal(p["additionalDirectories"], &more)
	for _, dir := range append([]string{p.text("cwd")}, more...) {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("the session's folder %q is not an absolute path", dir)
		}
		if err := r.Folders.Open(ctx, filepath.Clean(dir)); err != nil {
			return err
		}
	}
	return nil
}

// keepReachable removes MCP servers that the agent would have to start: they are programs of the
// editor's host.
func (r *Relay) keepReachable(p object) {
	var servers []object
	if json.Unmarshal(p["mcpServers"], &servers) != nil {
		return
	}
	kept := []object{}
	for _, s := range servers {
		if _, starts := s["command"]; starts {
			r.Note("left out the MCP server %q: it is a program of this host, and the agent is in a sandbox", s.text("name"))
			continue
		}
		kept = append(kept, s)
	}
	p.set("mcpServers", kept)
}

// editorAnswers handles the editor's answers to the agent.
func (r *Relay) editorAnswers(ctx context.Context, m *message) {
	r.mu.Lock()
	asked := r.asking[m.id]
	delete(r.asking, m.id)
	r.mu.Unlock()
	if asked == nil || asked.method != "fs/write_text_file" || m.fields["error"] != nil {
		return
	}
	// The agent's other tools must see what it has written.
	if err := r.Folders.Sync(ctx); err != nil {
		r.Note("%s was written here and not in the sandbox: %v", asked.params().text("path"), err)
	}
}

// fromAgent passes a line of the agent on.
func (r *Relay) fromAgent(ctx context.Context, line []byte) {
	m, err := parse(line)
	if err != nil {
		r.Note("the agent wrote what is no message: %s", strings.ToValidUTF8(string(line[:min(len(line), 200)]), "?"))
		return
	}
	for _, part := range []string{"params", "result"} {
		if raw, ok := m.fields[part]; ok {
			m.fields[part] = translate(raw, r.Folders.ToEditor)
		}
	}
	switch {
	case m.response():
		if asked := r.answered(m.id); asked != nil && asked.method == "session/prompt" {
			if err := r.Folders.Sync(ctx); err != nil && !errors.Is(err, context.Canceled) {
				r.Note("the folder could not be carried out of the sandbox: %v", err)
			}
		}
	case m.request():
		if code, err := r.allow(m); err != nil {
			if err := r.toAgent(ctx, failure(m.id, code, err.Error())); err != nil {
				r.Note("cannot answer the agent: %v", err)
			}
			return
		}
		r.mu.Lock()
		r.asking[m.id] = m
		r.mu.Unlock()
	}
	r.toEditor(m.line())
}

// allow says why a request is not passed to the editor. Exactly what was checked is passed on.
func (r *Relay) allow(m *message) (code int, err error) {
	switch {
	case strings.HasPrefix(m.method, "terminal/"):
		return codeNoMethod, errors.New("commands run in the sandbox: there are no terminals of the editor")
	case strings.HasPrefix(m.method, "fs/"):
		p := m.params()
		name := p.text("path")
		if err := r.Folders.Allow(name, m.method != "fs/read_text_file"); err != nil {
			return codeParams, err
		}
		m.fields.set("params", p)
	}
	return 0, nil
}
