// Package bench measures a Bothy server against other programs that do the same work. Its
// results are mostly ratios: the programs take turns (A B A B …), so that whatever else the
// machine does affects them alike.
//
// The cases here need only a client. Folder lab starts servers and rivals to measure, and
// cmd/bench is the program. The product does not use any of it, except for a command that
// measures a host.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Measure is one number to measure.
type Measure struct {
	// Name is the same in all output, for programs.
	Name string
	// Unit is ms, MB, MB/s, Gbit/s or similar.
	Unit string
	// Bounds are the limits on the median.
	Bounds []Bound
}

// A Bound is a limit: on the ratio to the median of another subject, or, without one, on the
// number itself. 0 means no bound.
type Bound struct {
	Against         string
	AtMost, AtLeast float64
}

// A Subject is a program to measure.
type Subject struct {
	Name string
	// Once does the work once and records one number per measure, or fewer if it has none.
	Once func(ctx context.Context, record Record) error
}

// Record records a number for a measure.
type Record func(measure string, value float64)

// A Case makes subjects do the same work in turns. The first is the subject in question; the
// others are what it is compared with.
type Case struct {
	// N is the number of turns of each subject, after one that does not count.
	N        int
	Measures []Measure
	Subjects []Subject
}

// Run measures. Turns that fail are counted and left out; the error contains the first failure
// of every subject, and the results are valid in spite of it.
func Run(ctx context.Context, c Case) ([]*Result, error) {
	taken := map[string]map[string]*Series{} // measure, subject
	for _, m := range c.Measures {
		taken[m.Name] = map[string]*Series{}
		for _, s := range c.Subjects {
			taken[m.Name][s.Name] = &Series{}
		}
	}
	failures := map[string]error{}
	before := Load()
	for turn := range c.N + 1 {
		for _, s := range c.Subjects {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took := map[string]float64{}
			err := s.Once(ctx, func(measure string, value float64) { took[measure] = value })
			if turn == 0 && err == nil {
				continue
			}
			for _, m := range c.Measures {
				value, has := took[m.Name]
				taken[m.Name][s.Name].add(value, has, err)
			}
			if err != nil && failures[s.Name] == nil {
				failures[s.Name] = fmt.Errorf("%s, turn %d: %w", s.Name, turn, err)
			}
		}
	}
	after := Load()
	var names []string
	for _, s := range c.Subjects {
		names = append(names, s.Name)
	}
	var all []*Result
	for _, m := range c.Measures {
		all = append(all, Compare(m, names, taken[m.Name], before, after))
	}
	var errs []error
	for _, err := range failures {
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Since returns the time since t in milliseconds.
func Since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
