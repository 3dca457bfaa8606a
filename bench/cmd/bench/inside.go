package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/suite"
)

func init() {
	programs["work"] = program{about: "what programs do inside, against docker, runsc and the host", runsc: true, materials: true, run: workInside}
}

// rows selects among the rows of work.
var rows = flag.String("rows", "work_*", "the `rows` of work, with * and ?, separated by commas")

func workOptions() suite.Options {
	return suite.Options{Only: strings.Split(*rows, ","), Against: []string{"docker", "runsc", "host"}, Say: func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }}
}

func workInside(ctx context.Context, l *lab.Lab, b *book, n int) error {
	o := workOptions()
	o.Lab, o.N, o.Builds = l.Options, n, map[string]string{}
	builds, err := otherBuilds()
	if err != nil {
		return err
	}
	for _, v := range builds {
		o.Builds[v.Name] = v.Program
	}
	if err := o.Check(); err != nil {
		return err
	}
	outcome, err := suite.Run(ctx, o)
	if outcome != nil {
		b.Host.Programs, b.Results, b.Missing = outcome.Host.Programs, outcome.Results, outcome.Missing
	}
	return err
}
