package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/switches"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
)

func init() {
	programs["switches"] = program{about: "what each optimisation of the sentry gains, by servers without it", run: measureSwitches}
	programs["switches-table"] = program{about: "a table of what the case switches has written so far", run: joinSwitches}
}

var (
	switchesOff  = flag.String("off", "", "the `optimisations` of the case switches; those joined by + are switched off together (default: all that bothy doctor -v lists, each alone, ten at a time)")
	switchesWork = flag.Float64("scale", 0.2, "how `much` work the case switches does, as a part of the usual")
	switchesPart = flag.String("parts", strings.Join(switches.Parts(), ","), "the `parts` of the case switches")
	switchesWith = flag.String("with", "", "other builds for the cases switches and work: `NAME=PROGRAM`, separated by commas")
)

// atOnce is how many optimisations are measured in turns with each other: more would not fit
// into two processors, and the turns would be too far apart.
const atOnce = 10

// variants are what to measure: what is requested, or everything that can be switched.
func variants() (all []switches.Variant, err error) {
	if *switchesOff != "" || *switchesWith == "" {
		names := strings.Split(*switchesOff, ",")
		if *switchesOff == "" {
			names = nil
			for _, o := range tuning.All {
				names = append(names, o.Name)
			}
		}
		for _, name := range names {
			if name == switches.Control {
				continue
			}
			together := strings.ReplaceAll(name, "+", ",")
			if _, err := tuning.Parse(together); err != nil {
				return nil, err
			}
			all = append(all, switches.Variant{Name: name, Env: []string{tuning.Variable + "=" + together}})
		}
	}
	others, err := otherBuilds()
	return append(all, others...), err
}

// otherBuilds are those that were named.
func otherBuilds() (all []switches.Variant, err error) {
	for pair := range strings.SplitSeq(*switchesWith, ",") {
		if pair == "" {
			continue
		}
		name, program, given := strings.Cut(pair, "=")
		if program, err = filepath.Abs(program); err != nil || !given {
			return nil, fmt.Errorf("-with %s: want NAME=PROGRAM", pair)
		}
		if _, err := os.Stat(program); err != nil {
			return nil, err
		}
		all = append(all, switches.Variant{Name: name, Program: program})
	}
	return all, nil
}

// measureSwitches writes its results after every few variants, and a table of them.
func measureSwitches(ctx context.Context, l *lab.Lab, b *book, n int) error {
	all, err := variants()
	if err != nil {
		return err
	}
	parts := strings.Split(*switchesPart, ",")
	for _, p := range parts {
		if !slices.Contains(switches.Parts(), p) {
			return fmt.Errorf("-parts %s: there are %s", p, strings.Join(switches.Parts(), ", "))
		}
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }
	for some := range slices.Chunk(all, atOnce) {
		here, err := lab.New(l.Options) // the servers of earlier ones are gone
		if err != nil {
			return err
		}
		results, err := switches.Run(ctx, here, append(some, switches.Variant{Name: switches.Control}), switches.Options{Turns: n, Scale: *switchesWork, Parts: parts, Say: say})
		here.Close()
		b.Results = append(b.Results, results...)
		switches.Table(os.Stdout, []*bench.Report{{Results: results}})
		if err != nil {
			return err
		}
	}
	return nil
}

// joinSwitches reads all reports of the case switches; newer ones win.
func joinSwitches(_ context.Context, _ *lab.Lab, _ *book, _ int) error {
	paths, err := filepath.Glob(filepath.Join(*outFolder, "switches-2*.json"))
	if err != nil {
		return err
	}
	var reports []*bench.Report
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		r := &bench.Report{}
		if err := json.Unmarshal(b, r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, r)
	}
	switches.Table(os.Stdout, reports)
	return nil
}
