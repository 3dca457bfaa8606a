package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// timesFile is what two runs are compared by.
const timesFile = "bin/test-times.json"

// slowest is how many tests are printed.
const slowest = 25

// spent is how long something took, as a line of the file that BOTHY_TEST_TIMES names.
type spent struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// BusyPercent is how much of the host's processors was used meanwhile, by all that ran. Only suites have it.
	BusyPercent float64 `json:"busy_percent,omitempty"`
}

// times is the content of timesFile.
type times struct {
	Begun  time.Time `json:"begun"`
	Commit string    `json:"commit"`
	// Suites are the suites that ran, and Tests their tests, the slowest first.
	Suites []spent `json:"suites"`
	Tests  []spent `json:"tests"`
	Total  float64 `json:"total_seconds"`
}

func readTests(r io.Reader) (all []spent, err error) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var s spent
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		all = append(all, s)
	}
	return all, nil
}

func bySeconds(all []spent) {
	slices.SortStableFunc(all, func(a, b spent) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

func (t times) print(w io.Writer) {
	fmt.Fprintln(w, "== where the time went")
	for _, s := range t.Suites {
		fmt.Fprintf(w, "%8.1fs  %-12s  processors %3.0f %% busy\n", s.Seconds, s.Name, s.BusyPercent)
	}
	fmt.Fprintf(w, "%8.1fs  in all, some of it two at a time\n", t.Total)
	fmt.Fprintln(w, "== the slowest tests")
	for _, s := range t.Tests[:min(slowest, len(t.Tests))] {
		fmt.Fprintf(w, "%8.1fs  %s\n", s.Seconds, s.Name)
	}
}

func (t times) save() error {
	b, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(timesFile, b, 0o644)
}

// processors is what the host's processors have done since it started, in ticks.
type processors struct{ busy, all float64 }

func readProcessors() (p processors, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		switch i {
		case 3, 4: // idle, and idle while waiting for a disk
		case 8, 9: // guests, which are counted as user and nice already
			continue
		default:
			p.busy += ticks
		}
		p.all += ticks
	}
	return p, nil
}

// busySince returns how much of the processors has been used since before.
func (p processors) busySince(before processors) (percent float64) {
	return 100 * (p.busy - before.busy) / max(p.all-before.all, 1)
}
