package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{nil, 50, 0},
		{[]float64{7}, 95, 7},
		{[]float64{3, 1, 2}, 50, 2},
		{[]float64{4, 1, 3, 2}, 50, 2.5},
		{[]float64{0, 100}, 95, 95},
	} {
		if got := Percentile(c.samples, c.p); got != c.want {
			t.Errorf("Percentile(%v, %v) = %v, want %v", c.samples, c.p, got, c.want)
		}
	}
}

func TestRunTakesTurnsAndLeavesTheFirstOut(t *testing.T) {
	var order []string
	subject := func(name string, values ...float64) Subject {
		return Subject{Name: name, Once: func(_ context.Context, record Record) error {
			order = append(order, name)
			record("m", values[0])
			values = values[1:]
			return nil
		}}
	}
	got, err := Run(t.Context(), Case{
		N:        2,
		Measures: []Measure{{Name: "m", Bounds: []Bound{{Against: "b", AtMost: 0.5}, {AtMost: 1}}}},
		Subjects: []Subject{subject("a", 99, 1, 3), subject("b", 99, 4, 4)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("a b a b a b"); !slices.Equal(order, want) {
		t.Errorf("the turns were %v, want %v", order, want)
	}
	m := got[0]
	if m.P50 != 2 || m.N != 2 || m.Against["b"].P50 != 4 || m.Against["b"].Ratio != 0.5 {
		t.Errorf("the result is %+v against %+v", m, m.Against["b"])
	}
	if !m.Verdicts[0].Kept || m.Verdicts[1].Kept {
		t.Errorf("the verdicts are %v", m.Verdicts)
	}
}

func TestRunCountsTurnsThatFail(t *testing.T) {
	turn := 0
	got, err := Run(t.Context(), Case{
		N:        3,
		Measures: []Measure{{Name: "m"}},
		Subjects: []Subject{{Name: "a", Once: func(_ context.Context, record Record) error {
			turn++
			record("m", 5)
			if turn == 3 {
				return errors.New("broke")
			}
			return nil
		}}},
	})
	if err == nil || !strings.Contains(err.Error(), "broke") {
		t.Errorf("the error is %v, want the failure of the turn", err)
	}
	if m := got[0]; m.N != 3 || m.OK != 2 || len(m.Samples) != 2 {
		t.Errorf("n = %d, ok = %d, samples = %v; want 3, 2 and two", m.N, m.OK, m.Samples)
	}
}
