package bench

import (
	"context"
	"errors"
	"image/png"
	"math"
	"strings"
	"sync/atomic"
	"testing"
)

func TestLaunchBeginsAllAtOnceAndCountsFailures(t *testing.T) {
	var running atomic.Int64
	all := make(chan struct{})
	s, err := Launch(t.Context(), 20, 0, func(context.Context) (float64, error) {
		n := running.Add(1)
		if n == 20 { // they wait for each other
			close(all)
		}
		<-all
		if n == 7 {
			return 0, errors.New("broke")
		}
		return float64(n), nil
	})
	if err == nil || s.N != 20 || s.OK != 19 || len(s.Samples) != 19 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestScore(t *testing.T) {
	same := func(n, ok int, ms float64) *Series {
		s := &Series{N: n, OK: ok}
		for range ok {
			s.Samples = append(s.Samples, ms)
		}
		return s
	}
	outlier := same(40, 40, 200)
	outlier.Samples[3] = 9000 // the slowest twentieth does not count
	for _, c := range []struct {
		name string
		s    *Series
		want float64
	}{
		{"nothing", &Series{}, 0},
		{"a fifth of a second", same(10, 10, 200), 98},
		{"half of them", same(10, 5, 200), 49},
		{"too slow", same(10, 10, 20_000), 0},
		{"one outlier", outlier, 98},
	} {
		if got := Score(c.s); math.Abs(got-c.want) > 0.001 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPicturesInPixels(t *testing.T) {
	var out strings.Builder
	plots := []Plot{{Title: "one", Lines: []Line{{Name: "a", Points: []Point{{0, 1}, {10, 30}}}}}, {Title: "empty"}, {Title: "three"}}
	if err := WritePNG(&out, plots); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != 2*plotWidth || size.Y != 2*plotHeight {
		t.Errorf("the picture is %v", size)
	}
	coloured := false
	for x := range plotWidth {
		for y := range plotHeight {
			coloured = coloured || picture.At(x, y) == rgb(colours[0])
		}
	}
	if !coloured {
		t.Error("the line is not drawn")
	}
}

func TestBriefLeavesSamplesOut(t *testing.T) {
	r := &Report{Results: []*Result{Compare(Measure{Name: "m"}, []string{"a", "b"},
		map[string]*Series{"a": {N: 1, OK: 1, Samples: []float64{1}}, "b": {N: 1, OK: 1, Samples: []float64{2}}}, 0, 0)}}
	b := r.Brief().Results[0]
	if b.Samples != nil || b.Against["b"].Samples != nil || b.P50 != 1 || b.Against["b"].Ratio != 0.5 {
		t.Errorf("in brief it is %+v", b)
	}
	if r.Results[0].Samples == nil || r.Results[0].Against["b"].Samples == nil {
		t.Error("the samples are gone from the report itself")
	}
}
