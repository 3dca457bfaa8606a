package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPlotsAreXMLWithEveryPoint(t *testing.T) {
	var out strings.Builder
	plots := []Plot{
		{Title: "one", Lines: []Line{{Name: "a", Points: []Point{{0, 1}, {10, 30}}}, {Name: "b", Points: []Point{{0, 2}}}}},
		{Title: "empty", Lines: []Line{{Name: "a"}}},
		{Title: "zero", Lines: []Line{{Name: "a", Points: []Point{{0, 0}}}}},
	}
	if err := WritePlots(&out, plots); err != nil {
		t.Fatal(err)
	}
	circles := 0
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 4 {
		t.Errorf("%d points are drawn, want 4", circles)
	}
	if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
		t.Error("a coordinate is no number")
	}
}

func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 1.1: 1.2, 512: 600, 1024: 1200, 37: 40} {
		if got := roundUp(v); got != want {
			t.Errorf("roundUp(%v) = %v, want %v", v, got, want)
		}
	}
}
