// Command bothy-bench runs the measurements of `bothy bench`. docs/benchmark.md explains
// the results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/payload"
	"github.com/bothy-dev/bothy/bench/suite"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/benchrun"
	"github.com/bothy-dev/bothy/internal/exitcode"
)

// payloadWord, as the first argument, makes this program the payload of the network cases.
const payloadWord = "payload"

func main() {
	err := run()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "bothy:", err)
	var refused *bothy.Error
	switch {
	case errors.As(err, &misuse{}):
		fmt.Fprintln(os.Stderr, "  hint: `bothy bench --help` shows how to use it.")
		os.Exit(exitcode.Usage)
	case errors.As(err, &refused) && refused.Hint != "":
		fmt.Fprintln(os.Stderr, "  hint:", refused.Hint)
	}
	os.Exit(exitcode.Of(err))
}

// misuse is an error in the arguments.
type misuse struct{ error }

func run() error {
	if len(os.Args) > 1 && os.Args[1] == payloadWord {
		return payload.Main(os.Args[2:])
	}
	r, ok, err := benchrun.FromEnv()
	if err != nil {
		return err
	}
	if !ok || len(os.Args) > 1 {
		return errors.New("this program is run by bothy bench: use that")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends this process at once
	return measure(ctx, r)
}

func measure(ctx context.Context, r benchrun.Request) error {
	o := suite.Options{
		Only: r.Only, Against: r.Against, N: r.Count, Quick: r.Quick, Sandboxes: r.Sandboxes, Materials: r.Materials, Scale: r.Scale,
		Lab: lab.Options{Bothy: r.Bothy, Templates: r.Templates, Template: r.Template, Engine: r.Engine, Kernels: r.Kernels, Payload: []string{payloadWord}},
	}
	if err := o.Check(); err != nil {
		return misuse{err}
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		o.Say = func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }
	}
	if err := prepare(ctx, r, &o); err != nil {
		return err
	}
	outcome, failed := suite.Run(ctx, o)
	if outcome == nil {
		return failed
	}
	if r.Out != "" {
		written, err := outcome.Write(r.Out)
		if err != nil {
			return err
		}
		for _, path := range written {
			fmt.Fprintln(os.Stderr, "wrote", path)
		}
	}
	if err := show(&outcome.Report, r.JSON); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("not everything could be measured: %w", templateMissing(r, failed))
	}
	return nil
}

// templateMissing explains how to make a template without a running server: the servers
// that the benchmark starts end with it.
func templateMissing(r benchrun.Request, err error) error {
	var e *bothy.Error
	if r.URL == "" && errors.As(err, &e) && e.Code == bothy.CodeTemplateNotFound {
		_ = e.WithHint("Templates are taken from %s. Run: bothy up, then bothy template build NAME, and bothy bench again.", r.Templates)
	}
	return err
}

// show prints a table for people, and JSON for programs.
func show(r *bench.Report, asJSON bool) error {
	if asJSON || !term.IsTerminal(int(os.Stdout.Fd())) {
		return json.NewEncoder(os.Stdout).Encode(r.Brief())
	}
	return r.Table(os.Stdout)
}

// prepare chooses the server to measure, or runs this program again in namespaces in
// which it can start its own servers.
func prepare(ctx context.Context, r benchrun.Request, o *suite.Options) error {
	if r.URL != "" {
		o.Target = &bench.Target{Client: client.New(r.URL, r.Key), Template: r.Template, Engine: r.Engine}
		return o.Fetch(ctx)
	}
	var err error
	if o.Lab.Runsc, err = exec.LookPath("runsc"); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	if !lab.Inside() { // there is no network in the namespaces
		if err := o.Fetch(ctx); err != nil {
			return err
		}
	}
	return lab.Enter()
}
