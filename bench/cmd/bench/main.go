// Command bench measures Bothy against other programs and writes a table, and the raw samples as
// JSON. Run it as root: it starts a server, a Docker daemon and what else it needs in namespaces
// of its own, and ends it all.
//
//	go run ./bench/cmd/bench [flags] [case ...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/payload"
)

// A program is one case with the lab that it needs. n is the number of turns, or 0 for the usual
// number.
type program struct {
	about string
	runsc bool // is one of the rivals
	bare  bool // needs the server without what it is measured for
	// materials is set if it needs packages that are fetched beforehand.
	materials bool
	run       func(ctx context.Context, l *lab.Lab, b *book, n int) error
}

var programs = map[string]program{}

// book collects what the cases have measured.
type book struct {
	bench.Report
	// plots are written next to the samples, as one picture.
	plots []bench.Plot
}

func (b *book) run(ctx context.Context, c bench.Case) error {
	results, err := bench.Run(ctx, c)
	b.Results = append(b.Results, results...)
	return err
}

var outFolder = flag.String("out", "bench/results", "`folder` for the raw samples")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// payloadWord makes this program the payload of the network's cases.
const payloadWord = "payload"

func run() error {
	if len(os.Args) > 1 && os.Args[1] == payloadWord {
		return payload.Main(os.Args[2:])
	}
	var o lab.Options
	flag.StringVar(&o.Bothy, "bothy", "bin/bothy", "the `program` to measure")
	flag.StringVar(&o.Templates, "templates", env("BOTHY_TEMPLATES", "/var/lib/bothy/templates"), "`folder` of the templates")
	flag.StringVar(&o.Template, "template", "python-3.12-bare", "`name` of the template to measure with")
	source := flag.String("source", ".", "`folder` of Bothy's Go module, to build runsc from")
	out := outFolder
	n := flag.Int("n", 0, "how many turns each subject takes (default: the case's own)")
	flag.Usage = usage
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(programs))
	}
	for _, name := range names {
		if _, known := programs[name]; !known {
			return fmt.Errorf("there is no case %q; the cases are %s", name, strings.Join(slices.Sorted(maps.Keys(programs)), " "))
		}
	}
	o.Runsc, o.Payload = filepath.Join(*out, "bin", "runsc"), []string{payloadWord}
	for _, p := range []*string{&o.Bothy, &o.Templates, &o.Runsc, out, source} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if err := os.MkdirAll(filepath.Dir(o.Runsc), 0o755); err != nil {
		return err
	}
	if !lab.Inside() && slices.ContainsFunc(names, func(name string) bool { return programs[name].runsc }) {
		if err := lab.BuildRunsc(*source, o.Runsc); err != nil {
			return err
		}
	}
	o.Bare = filepath.Join(*out, "bin", "bothy-bare")
	if !lab.Inside() && slices.ContainsFunc(names, func(name string) bool { return programs[name].bare }) {
		if err := buildBare(*source, o.Bare); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !lab.Inside() && slices.ContainsFunc(names, func(name string) bool { return programs[name].materials }) {
		if err := workOptions().Fetch(ctx); err != nil {
			return err
		}
	}
	if err := lab.Enter(); err != nil {
		return err
	}
	failed := false
	for _, name := range names {
		if err := one(ctx, o, name, *n, *out); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
		}
	}
	if failed {
		return fmt.Errorf("not everything could be measured")
	}
	return nil
}

// one runs a case in a lab of its own, so that none affects another.
func one(ctx context.Context, o lab.Options, name string, n int, out string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, err := lab.New(o)
	if err != nil {
		return err
	}
	defer l.Close()
	b := &book{Report: bench.Report{Host: bench.ThisHost()}}
	fmt.Printf("# %s: %s (%s)\n", name, programs[name].about, time.Now().Format(time.DateTime))
	err = programs[name].run(ctx, l, b, n)
	if len(b.Results) > 0 {
		_ = b.Table(os.Stdout)
		if e := write(b, filepath.Join(out, name+time.Now().Format("-20060102-150405"))); err == nil {
			err = e
		}
	}
	if err != nil {
		if keep := filepath.Join(out, name+"-server.log"); l.KeepLog("server", keep) == nil {
			err = fmt.Errorf("%w (the server's log is in %s)", err, keep)
		}
	}
	return err
}

// write writes the samples, and the plots if there are any.
func write(b *book, path string) error {
	err := create(path+".json", b.Write)
	if err == nil && len(b.plots) > 0 {
		err = create(path+".svg", func(w io.Writer) error { return bench.WritePlots(w, b.plots) })
	}
	return err
}

func create(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

func usage() {
	fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [flags] [case ...]\n\ncases:")
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-12s %s\n", name, programs[name].about)
	}
	fmt.Fprintln(flag.CommandLine.Output(), "\nflags:")
	flag.PrintDefaults()
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func orElse(n, usual int) int {
	if n == 0 {
		return usual
	}
	return n
}
