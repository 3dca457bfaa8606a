package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// A Series is the samples of one subject.
type Series struct {
	N   int     `json:"n"`
	OK  int     `json:"ok"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	// Ratio is the median of the subject in question divided by this one's, if this is what it
	// is compared with.
	Ratio float64 `json:"ratio,omitempty"`
	// Score is that of ComputeSDK's method, if that was used.
	Score   float64   `json:"score,omitempty"`
	Samples []float64 `json:"samples,omitempty"`
}

func (s *Series) add(value float64, has bool, err error) {
	if err != nil {
		s.N++
	} else if has {
		s.N++
		s.OK++
		s.Samples = append(s.Samples, value)
	}
}

func (s *Series) finish() {
	s.P50, s.P95, s.P99 = Percentile(s.Samples, 50), Percentile(s.Samples, 95), Percentile(s.Samples, 99)
}

// Percentile of unsorted samples, by linear interpolation; 0 if there are none.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := p / 100 * float64(len(sorted)-1)
	low, part := math.Modf(at)
	i := int(low)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}

// A Result is one measure of one case.
type Result struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Series
	// Value is the median again, under a name for numbers that are not times.
	Value   float64            `json:"value"`
	Against map[string]*Series `json:"against,omitempty"`
	// LoadBefore and LoadAfter are the host's load averages over a minute.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// Missing lists what it could not be compared with, and why.
	Missing []string `json:"missing,omitempty"`
	// Notes are for people.
	Notes    []string  `json:"notes,omitempty"`
	Verdicts []Verdict `json:"bounds,omitempty"`

	order []string
}

// A Verdict says whether a bound was met.
type Verdict struct {
	Against string  `json:"against,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	Is      float64 `json:"is"`
	Kept    bool    `json:"kept"`
}

// Compare makes a result of existing series. The first name is the subject in question, and the
// loads are those before and after.
func Compare(m Measure, names []string, series map[string]*Series, before, after float64) *Result {
	r := &Result{Name: m.Name, Unit: m.Unit, LoadBefore: before, LoadAfter: after, Against: map[string]*Series{}}
	for i, name := range names {
		one := series[name]
		one.finish()
		if i == 0 {
			r.Series, r.Value = *one, one.P50
			continue
		}
		if one.N == 0 {
			continue // it has no such measure
		}
		if one.P50 > 0 {
			one.Ratio = r.P50 / one.P50
		}
		r.Against[name] = one
		r.order = append(r.order, name)
	}
	for _, b := range m.Bounds {
		r.Verdicts = append(r.Verdicts, r.judge(b))
	}
	return r
}

func (r *Result) judge(b Bound) Verdict {
	v := Verdict{Against: b.Against, AtMost: b.AtMost, AtLeast: b.AtLeast, Is: r.P50}
	if b.Against != "" {
		v.Is = 0
		if other := r.Against[b.Against]; other != nil {
			v.Is = other.Ratio
		}
	}
	v.Kept = v.Is > 0 && (b.AtMost == 0 || v.Is <= b.AtMost) && v.Is >= b.AtLeast
	return v
}

func (v Verdict) String() string {
	sign, bound := "≤", v.AtMost
	if v.AtLeast > 0 {
		sign, bound = "≥", v.AtLeast
	}
	word := "kept"
	if !v.Kept {
		word = "MISSED"
	}
	if v.Against == "" {
		return fmt.Sprintf("%s%s %s", sign, short(bound), word)
	}
	return fmt.Sprintf("%s%s×%s %s", sign, short(bound), v.Against, word)
}

// Report is everything that a run of the program has measured.
type Report struct {
	Host    Host      `json:"host"`
	Results []*Result `json:"results"`
	// Missing lists what could not be measured, and why.
	Missing []string `json:"missing,omitempty"`
}

// Brief is the report without the individual samples.
func (r *Report) Brief() *Report {
	b := &Report{Host: r.Host, Missing: r.Missing, Results: []*Result{}}
	for _, x := range r.Results {
		short := *x
		short.Samples, short.Against = nil, map[string]*Series{}
		for name, s := range x.Against {
			one := *s
			one.Samples = nil
			short.Against[name] = &one
		}
		b.Results = append(b.Results, &short)
	}
	return b
}

// Write writes JSON for programs.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Table writes lines for people.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "measure\tunit\tn\tp50\tp95\tp99\tagainst\tp50\tp95\tratio\tload\twanted")
	for _, x := range r.Results {
		x.rows(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Results {
		for _, line := range x.Notes {
			fmt.Fprintf(w, "%s: %s\n", x.Name, line)
		}
	}
	for _, line := range r.Missing {
		fmt.Fprintln(w, line)
	}
	return nil
}

func (x *Result) rows(w io.Writer) {
	load := fmt.Sprintf("%.1f-%.1f", x.LoadBefore, x.LoadAfter)
	count := fmt.Sprint(x.OK)
	if x.OK < x.N {
		count = fmt.Sprintf("%d of %d", x.OK, x.N)
	}
	own := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", x.Name, x.Unit, count, short(x.P50), short(x.P95), short(x.P99))
	if len(x.order) == 0 {
		fmt.Fprintf(w, "%s\t\t\t\t\t%s\t%s\n", own, load, x.wanted(""))
	}
	for _, name := range x.order {
		o := x.Against[name]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.3f\t%s\t%s\n", own, name, short(o.P50), short(o.P95), o.Ratio, load, x.wanted(name))
		own, load = "\t\t\t\t\t", ""
	}
}

// wanted are the bounds to show in the row of another subject. Those without one are in the
// first row.
func (x *Result) wanted(against string) string {
	var out string
	if x.Score > 0 && (len(x.order) == 0 || against == x.order[0]) {
		out = fmt.Sprintf("score %.2f ", x.Score)
	}
	for _, v := range x.Verdicts {
		if v.Against == against || v.Against == "" && len(x.order) > 0 && against == x.order[0] {
			out += v.String() + " "
		}
	}
	return out
}

func short(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// Single is a result that is compared with nothing, from samples that were taken elsewhere.
func Single(name, unit string, samples []float64, bounds ...Bound) *Result {
	now := Load()
	s := &Series{N: len(samples), OK: len(samples), Samples: samples}
	return Compare(Measure{Name: name, Unit: unit, Bounds: bounds}, []string{"bothy"}, map[string]*Series{"bothy": s}, now, now)
}
