package e2b

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// interpreter answers requests to the code interpreter.
func (d *Door) interpreter(t target) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/contexts/"), "/")
		switch {
		case r.URL.Path == "/health" && r.Method == http.MethodGet:
			return reply(w, http.StatusOK, "OK")
		case r.URL.Path == "/execute" && r.Method == http.MethodPost:
			return d.execute(w, r, t)
		case r.URL.Path == "/contexts" && r.Method == http.MethodPost:
			return d.createContext(w, r, t)
		case r.URL.Path == "/contexts" && r.Method == http.MethodGet:
			return d.listContexts(w, r, t)
		case strings.HasPrefix(r.URL.Path, "/contexts/") && rest == "" && r.Method == http.MethodDelete:
			if err := d.Code.DeleteContext(r.Context(), t.id, id); err != nil {
				return err
			}
			return done(w)
		case strings.HasPrefix(r.URL.Path, "/contexts/") && rest == "restart" && r.Method == http.MethodPost:
			if err := d.Code.RestartContext(r.Context(), t.id, id); err != nil {
				return err
			}
			d.prepared.drop(t.id, id)
			return done(w)
		}
		return bothy.Errorf(bothy.CodeNotFound, "the code interpreter has no %s %s", r.Method, r.URL.Path)
	}
}

// codeContext is a place where code runs, as clients see it.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// homeOfCode is where code starts by default.
const homeOfCode = "/home/user"

func (d *Door) createContext(w http.ResponseWriter, r *http.Request, t target) error {
	var in struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Cwd == "" {
		in.Cwd = homeOfCode
	}
	c, err := d.Code.CreateContext(r.Context(), t.id, bothy.CodeContextCreate{Language: languageOf(in.Language), Cwd: in.Cwd})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, codeContext{c.ID, c.Language, c.Cwd})
}

func (d *Door) listContexts(w http.ResponseWriter, r *http.Request, t target) error {
	all, err := d.Code.Contexts(r.Context(), t.id)
	if err != nil {
		return err
	}
	list := make([]codeContext, len(all))
	for i, c := range all {
		list[i] = codeContext{c.ID, c.Language, c.Cwd}
	}
	return reply(w, http.StatusOK, list)
}

// languageOf resolves the short names of languages.
func languageOf(name string) string {
	switch strings.ToLower(name) {
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return strings.ToLower(name)
}

func (d *Door) execute(w http.ResponseWriter, r *http.Request, t target) error {
	var in struct {
		Code      string            `json:"code"`
		ContextID string            `json:"context_id"`
		Language  string            `json:"language"`
		Env       map[string]string `json:"env_vars"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.ContextID != "" && in.Language != "" {
		return invalid("context_id and language cannot be given together")
	}
	d.Server.Note(r, t.id, "", in.Code)
	req := bothy.CodeRequest{Code: in.Code, ContextID: in.ContextID, Language: languageOf(in.Language), Env: in.Env}
	if err := d.prepare(r.Context(), t, req.ContextID, req.Language); err != nil {
		return err
	}
	out := lines{w: w}
	err := d.Code.RunCodeStream(r.Context(), t.id, req, out.event)
	if err != nil && d.ended(r.Context(), t) {
		// A client that hears no end asks whether the sandbox is still there.
		if out.began {
			panic(http.ErrAbortHandler)
		}
		return notFound(t.id)
	}
	if err != nil && out.began {
		// The answer has begun, so an error can only be reported in the client's own format.
		e := bothy.AsError(err)
		return out.send(map[string]any{"type": "error", "name": "SandboxError", "value": e.Detail, "traceback": e.Hint})
	}
	return err
}

// ended reports whether a sandbox is not there any more.
func (d *Door) ended(ctx context.Context, t target) bool {
	sb, err := d.Server.Find(ctx, t.id)
	return bothy.ErrorCode(err) == bothy.CodeSandboxNotFound || err == nil && stateOf(sb.State) == ""
}

// lines writes the output of code as one JSON object per line.
type lines struct {
	w     http.ResponseWriter
	began bool
}

func (l *lines) send(v any) error {
	if !l.began {
		l.began = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	if err := json.NewEncoder(l.w).Encode(v); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}

func (l *lines) event(e bothy.CodeEvent) error {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	if e.Stream == "stdout" || e.Stream == "stderr" {
		return l.send(map[string]any{"type": e.Stream, "text": e.Data, "timestamp": now})
	}
	for _, o := range e.Results {
		if err := l.send(resultOf(o, e.IsValue)); err != nil {
			return err
		}
	}
	if !e.IsFinal {
		return nil
	}
	switch {
	case e.Error != nil:
		if err := l.send(map[string]any{"type": "error", "name": e.Error.Name, "value": e.Error.Value, "traceback": e.Error.Traceback}); err != nil {
			return err
		}
	case e.TimedOut || e.OOMKilled || e.ExitCode != nil && *e.ExitCode != 0:
		if err := l.send(endOf(e)); err != nil {
			return err
		}
	}
	if err := l.send(map[string]any{"type": "number_of_executions", "execution_count": e.ExecutionCount}); err != nil {
		return err
	}
	return l.send(map[string]any{"type": "end_of_execution"})
}
