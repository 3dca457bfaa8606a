package switches

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/bench"
)

// Worth is what an optimisation has to gain in some measure to be kept.
const Worth = 0.02

// Gain is by how much more something takes in a variant than with everything on: the median over
// consecutive turns. Noise is the uncertainty of that, 0 if unknown: with other turns the result
// would be within it in 19 of 20 cases. ok is false if it was not measured.
func Gain(r *bench.Result, variant string) (gain, noise float64, ok bool) {
	other := r.Against[variant]
	if other == nil || other.OK == 0 || r.OK == 0 || r.P50 <= 0 {
		return 0, 0, false
	}
	if len(other.Samples) != len(r.Samples) || other.OK < other.N || r.OK < r.N {
		return other.P50/r.P50 - 1, 0, true
	}
	var ratios []float64
	for i, with := range r.Samples {
		if with > 0 {
			ratios = append(ratios, other.Samples[i]/with)
		}
	}
	// The notch of a box plot.
	middle := bench.Percentile(ratios, 75) - bench.Percentile(ratios, 25)
	return bench.Percentile(ratios, 50) - 1, 1.57 * middle / math.Sqrt(float64(len(ratios))), len(ratios) > 0
}

// columns are the measures that have a column of their own in the table.
var columns = []struct{ name, title string }{
	{"create_exec_cold", "cold"}, {ColdCPU, "cold, processor"}, {bench.CreateExecPool, "pool"}, {"exec", "exec"}, {bench.Resume, "resume"},
	{IdleMemory, "idle memory"}, {IdleCPU, "idle processor"},
}

// Table writes what each variant of some reports gains, as Markdown. A report has the variants
// that were measured together.
func Table(w io.Writer, reports []*bench.Report) {
	head, line := "| off |", "|---|"
	for _, c := range columns {
		head, line = head+" "+c.title+" |", line+"---|"
	}
	fmt.Fprintf(w, "%s most of the work |\n%s---|\n", head, line)
	for _, r := range reports {
		for _, variant := range variants(r) {
			fmt.Fprintf(w, "| %s |", variant)
			for _, c := range columns {
				fmt.Fprintf(w, " %s |", cell(find(r, c.name, variant), variant))
			}
			fmt.Fprintf(w, " %s |\n", mostWork(r, variant))
		}
	}
}

// variants are those of a report, sorted by name, the control last.
func variants(r *bench.Report) (names []string) {
	for _, x := range r.Results {
		for name := range x.Against {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if (a == Control) != (b == Control) {
			return map[bool]int{true: 1, false: -1}[a == Control]
		}
		return strings.Compare(a, b)
	})
	return names
}

// find is the result of that name that includes a variant.
func find(r *bench.Report, name, variant string) *bench.Result {
	for _, x := range r.Results {
		if x.Name == name && x.Against[variant] != nil {
			return x
		}
	}
	return nil
}

func cell(r *bench.Result, variant string) string {
	if r == nil {
		return ""
	}
	gain, noise, ok := Gain(r, variant)
	if ok {
		return percent(gain, noise)
	}
	if other := r.Against[variant]; r.P50 == 0 && r.OK == r.N && other.OK == other.N {
		return fmt.Sprintf("0 and %.0f %s", other.P50, r.Unit)
	}
	return "–"
}

func percent(gain, noise float64) string {
	if noise == 0 {
		return fmt.Sprintf("%+.1f %%", 100*gain)
	}
	return fmt.Sprintf("%+.1f ± %.1f %%", 100*gain, 100*noise)
}

// mostWork names the rows of work that take longest without it, and the one that is quickest, if
// that is more than noise.
func mostWork(r *bench.Report, variant string) string {
	type row struct {
		name        string
		gain, noise float64
	}
	var rows []row
	for _, x := range r.Results {
		name, is := strings.CutPrefix(x.Name, "work_")
		if gain, noise, ok := Gain(x, variant); is && ok && math.Abs(gain) >= max(Worth, noise) {
			rows = append(rows, row{name, gain, noise})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return int(1e6 * (b.gain - a.gain)) })
	var words []string
	for i, one := range rows {
		if i < 2 || i == len(rows)-1 && one.gain < 0 {
			words = append(words, one.name+" "+percent(one.gain, one.noise))
		}
	}
	return strings.Join(words, ", ")
}
