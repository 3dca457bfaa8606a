package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	shellInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *bothy.ShellCreate
	}
	shellExecInput struct {
		ID     string `path:"id" doc:"The sandbox's id."`
		Shell  string `path:"shell" doc:"The shell's id, or default for the one that every sandbox has."`
		Accept string `header:"Accept" hidden:"true"`
		Body   bothy.ShellRequest
	}
	shellRef struct {
		ID    string `path:"id" doc:"The sandbox's id."`
		Shell string `path:"shell" doc:"The shell's id, or default for the one that every sandbox has."`
	}
)

func (s *handlers) registerShells() {
	svc := s.services.Code
	if svc == nil {
		return
	}
	const base = "/v1/sandboxes/{id}/shells"
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-shell", Method: http.MethodPost, Path: base, Tag: "Commands",
		Summary: "Create a kept shell", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "A bash whose directory and variables persist from one command to the next. Commands in one shell run one after the other, in different shells concurrently.",
	}, func(ctx context.Context, in *shellInput) (*openapi.Answer[*bothy.Shell], error) {
		req := bothy.CodeContextCreate{Language: "bash"}
		if in.Body != nil {
			req.Cwd = in.Body.Cwd
		}
		c, err := svc.CreateContext(ctx, in.ID, req)
		if err != nil {
			return nil, err
		}
		shell := shellOf(*c)
		return one(&shell, nil)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-shells", Method: http.MethodGet, Path: base, Tag: "Commands",
		Summary: "List kept shells", Scope: bothy.ScopeSandboxesRead,
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[openapi.Items[bothy.Shell]], error) {
		contexts, err := svc.Contexts(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		var shells []bothy.Shell
		for _, c := range contexts {
			if c.Language == "bash" {
				shells = append(shells, shellOf(c))
			}
		}
		return openapi.AnswerList(shells), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "exec-in-shell", Once: true, Method: http.MethodPost, Path: base + "/{shell}/exec", Tag: "Commands",
		Summary: "Run a command in a kept shell", Scope: bothy.ScopeSandboxesWrite,
		Text: "Answers when the command has ended. A time-out ends the command and what it started, but not the shell. " +
			"With `Accept: text/event-stream` the output comes as events while the command runs, and the last event has `is_final`; " +
			"a caller that disconnects before that ends the command.",
		Returns: []middleware.Form{middleware.As[bothy.ShellResult]("application/json"), middleware.As[bothy.ShellEvent](middleware.EventsType)},
	}, s.execInShell)
	names := func(in *shellRef) (id, contextID string) { return in.ID, bothy.ShellContext(in.Shell) }
	addContextActions(s, base+"/{shell}", "Commands", names, []contextAction{
		{"delete-shell", http.MethodDelete, "", "End a kept shell", "With all that it started.", svc.DeleteContext},
		{"interrupt-shell", http.MethodPost, "/interrupt", "Interrupt the command in a kept shell", "As Ctrl-C does; what ignores that is killed. Where no command runs, the answer is `conflict`.", svc.InterruptContext},
		{"restart-shell", http.MethodPost, "/restart", "Reset a kept shell", "Its directory and variables are gone, and what it started is ended.", svc.RestartContext},
	})
}

func shellOf(c bothy.CodeContext) bothy.Shell {
	shell := bothy.Shell{ID: c.ID, Cwd: c.Cwd, CreatedAt: c.CreatedAt}
	if c.ID == bothy.ShellContext(bothy.DefaultShell) {
		shell.ID = bothy.DefaultShell
	}
	return shell
}

func (s *handlers) execInShell(ctx context.Context, in *shellExecInput) (*openapi.Response, error) {
	req, err := in.Body.InShell(in.Shell)
	if err != nil {
		return nil, err
	}
	if middleware.WantsEvents(in.Accept) {
		return s.codeStream(in.ID, req, func(e bothy.CodeEvent) any { return shellEvent(e) }), nil
	}
	result, err := s.services.Code.RunCode(ctx, in.ID, req)
	if err != nil {
		return nil, err
	}
	return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, result.Shell()) }), nil
}

func shellEvent(e bothy.CodeEvent) bothy.ShellEvent {
	if !e.IsFinal {
		return bothy.ShellEvent{Stream: e.Stream, Data: e.Data}
	}
	r := e.Shell()
	return bothy.ShellEvent{
		IsFinal: true, ExitCode: &r.ExitCode, DurationMS: &r.DurationMS, TimedOut: r.TimedOut,
		OOMKilled: r.OOMKilled, Truncated: r.Truncated, Ended: r.Ended, Hint: r.Hint,
	}
}
