package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newCode(a *app) *cobra.Command {
	var req bothy.CodeRequest
	var env []string
	var save string
	cmd := &cobra.Command{
		Use:   "code SANDBOX [CODE]",
		Short: "Run code with persistent variables, as in a notebook",
		Long: `Run a piece of code in Python, JavaScript or bash. Variables persist from one
piece to the next, in the language's default context or in the one given.
Without CODE it is read from standard input.

The code's output appears as it is written, followed by its results as text. If
it raises an exception, the traceback goes to standard error and the exit code
is 1.`,
		Example: `  bothy code sbx4f2a 'x = 20 + 1'
  bothy code sbx4f2a 'x * 2'
  bothy code sbx4f2a -l javascript '[1, 2, 3].map((n) => n * n)'
  bothy code sbx4f2a --save out < plot.py`,
		Args: usage(cobra.RangeArgs(1, 2)),
	}
	flags := cmd.Flags()
	flags.StringVarP(&req.Language, "language", "l", "", "python, javascript or bash (default python, or the context's)")
	flags.StringVarP(&req.ContextID, "context", "c", "", "`context` to run it in (default the language's own)")
	fractionVar(flags, &req.TimeoutSeconds, "timeout", "`time` after which it is interrupted, as in 1.5s or 5m (default never)")
	flags.StringArrayVarP(&env, "env", "e", nil, "environment variable, as `KEY=VALUE` (repeatable)")
	flags.StringVar(&save, "save", "", "`folder` in which to keep images and the like that are displayed")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) (err error) {
		if req.Env, err = keyValues("--env", env); err != nil {
			return err
		}
		if req.Code, err = a.codeFrom(args[1:]); err != nil {
			return err
		}
		if a.json {
			return a.codeJSON(ctx, s, args[0], req)
		}
		return a.code(ctx, s, args[0], req, save)
	})
	return cmd
}

// codeFrom returns the code of the command line, or of standard input.
func (a *app) codeFrom(args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	text, err := io.ReadAll(a.stdin)
	if err == nil && len(text) == 0 {
		err = usagef("Put it behind the sandbox, or send it to standard input.", "no code was given")
	}
	return string(text), err
}

func (a *app) codeJSON(ctx context.Context, s *session, id string, req bothy.CodeRequest) error {
	result, err := s.code.RunCode(ctx, id, req)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := a.show(result, nil); err != nil {
		return err
	}
	if result.Error != nil {
		return exitCode(exitFailed)
	}
	return nil
}

// code runs code with its output on our streams. When ctx ends, the code is interrupted.
func (a *app) code(ctx context.Context, s *session, id string, req bothy.CodeRequest, save string) error {
	var final bothy.CodeEvent
	kept := 0
	err := s.code.RunCodeStream(ctx, id, req, func(e bothy.CodeEvent) error {
		if e.IsFinal {
			final = e
		}
		w := a.stdout
		if e.Stream == "stderr" {
			w = a.stderr
		}
		if _, err := io.WriteString(w, e.Data); err != nil {
			return err
		}
		for _, out := range e.Results {
			if err := a.showOutput(out); err != nil {
				return err
			}
			if save != "" {
				if err := a.keepOutput(out, save, &kept); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	return a.codeEnded(final)
}

func (a *app) codeEnded(e bothy.CodeEvent) error {
	switch {
	case e.OOMKilled:
		fmt.Fprintln(a.stderr, "bothy: the code was killed because the sandbox was out of memory")
	case e.TimedOut:
		fmt.Fprintln(a.stderr, "bothy: the code was interrupted because its time was up")
	case e.Error != nil:
		text := cmp.Or(e.Error.Traceback, e.Error.Name+": "+e.Error.Value)
		fmt.Fprintln(a.stderr, strings.TrimRight(text, "\n"))
	}
	if e.Hint != "" {
		fmt.Fprintf(a.stderr, "  hint: %s\n", e.Hint)
	}
	if e.Truncated {
		fmt.Fprintln(a.stderr, "bothy: some of the output was dropped, because it was too much")
	}
	if e.Error != nil || e.TimedOut || e.OOMKilled {
		return exitCode(exitFailed)
	}
	return nil
}

// kinds maps formats to the files in which displayed results are kept.
var kinds = map[string]string{
	"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/svg+xml": "svg", "application/pdf": "pdf",
	"text/html": "html", "text/markdown": "md", "text/latex": "tex", "application/json": "json",
}

// showOutput prints what was displayed as text.
func (a *app) showOutput(out bothy.CodeOutput) error {
	text, ok := out["text/plain"]
	if !ok {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

// keepOutput writes the other formats of displayed results to a folder, as numbered files.
func (a *app) keepOutput(out bothy.CodeOutput, folder string, n *int) error {
	for _, kind := range slices.Sorted(maps.Keys(out)) {
		ending, ok := kinds[kind]
		if !ok {
			continue
		}
		data := []byte(out[kind])
		if binary(kind) {
			var err error
			if data, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(out[kind], "\n", "")); err != nil {
				return fmt.Errorf("the %s that was displayed cannot be read: %w", kind, err)
			}
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		*n++
		path := filepath.Join(folder, fmt.Sprintf("%d.%s", *n, ending))
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "kept %s\n", path)
	}
	return nil
}

// binary reports whether results of a format come in base64.
func binary(kind string) bool {
	return strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" || kind == "application/pdf"
}
