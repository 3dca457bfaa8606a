package switches

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/bench"
)

func result(name string, all []float64, off map[string][]float64) *bench.Result {
	names, series := []string{All}, map[string]*bench.Series{All: {N: len(all), OK: len(all), Samples: all}}
	for variant, samples := range off {
		names = append(names, variant)
		series[variant] = &bench.Series{N: len(samples), OK: len(samples), Samples: samples}
	}
	return bench.Compare(bench.Measure{Name: name, Unit: "ms"}, names, series, 0, 0)
}

func TestGainComparesAdjacentTurns(t *testing.T) {
	// The machine is slow in the second turn. A comparison of medians would say 80 %.
	r := result("exec", []float64{10, 100, 10}, map[string][]float64{"batch": {18, 110, 11}})
	gain, noise, ok := Gain(r, "batch")
	if !ok || gain < 0.0999 || gain > 0.1001 || noise < 0.31 || noise > 0.32 {
		t.Errorf("the gain is %v ± %v, %v", gain, noise, ok)
	}
	if _, _, ok := Gain(r, "naps"); ok {
		t.Error("what was not measured has a gain")
	}
}

func TestTable(t *testing.T) {
	off := func(control, batch float64) map[string][]float64 {
		return map[string][]float64{Control: {control}, "batch": {batch}}
	}
	var out strings.Builder
	Table(&out, []*bench.Report{{Results: []*bench.Result{
		result("create_exec_cold", []float64{50}, off(50, 55)),
		result("exec", []float64{10}, off(10.1, 15)),
		result(IdleCPU, []float64{0}, off(0, 3)),
		result("work_read", []float64{100}, off(101, 90)),
		result("work_spawn", []float64{100}, off(99, 130)),
		result("work_pipe", []float64{100}, off(100, 100)),
		result("work_stat", []float64{100, 100, 100}, map[string][]float64{"batch": {80, 104, 150}}), // who knows
	}}})
	want := `| off | cold | cold, processor | pool | exec | resume | idle memory | idle processor | most of the work |
|---|---|---|---|---|---|---|---|---|
| batch | +10.0 % |  |  | +50.0 % |  |  | 0 and 3 ms | spawn +30.0 %, read -10.0 % |
| control | +0.0 % |  |  | +1.0 % |  |  | 0 and 0 ms |  |
`
	if out.String() != want {
		t.Errorf("the table is\n%swant\n%s", &out, want)
	}
}
