package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// A Plot is a picture of lines over the same axes, which begin at 0.
type Plot struct {
	Title, X, Y string
	Lines       []Line
}

// A Line has points in the order of their X.
type Line struct {
	Name   string
	Points []Point
}

// Point is where a line goes through.
type Point struct{ X, Y float64 }

// The size of one plot, and the room around its axes, in pixels.
const (
	plotWidth, plotHeight   = 460, 300
	left, right, above, low = 56, 20, 40, 44
)

var colours = []string{"#1b6ca8", "#c8553d", "#5b8c5a", "#7d5ba6"}

// WritePlots writes plots as one SVG picture, two beside each other.
func WritePlots(w io.Writer, plots []Plot) error {
	out := bufio.NewWriter(w)
	rows := (len(plots) + 1) / 2
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n",
		min(2, len(plots))*plotWidth, rows*plotHeight)
	fmt.Fprintln(out, `<rect width="100%" height="100%" fill="white"/>`)
	for i, p := range plots {
		fmt.Fprintf(out, "<g transform=\"translate(%d,%d)\">\n", i%2*plotWidth, i/2*plotHeight)
		p.write(out)
		fmt.Fprintln(out, "</g>")
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

func (p Plot) write(w io.Writer) {
	var most Point
	for _, l := range p.Lines {
		for _, at := range l.Points {
			most.X, most.Y = max(most.X, at.X), max(most.Y, at.Y)
		}
	}
	most.X, most.Y = roundUp(most.X), roundUp(most.Y)
	x := func(v float64) float64 { return left + v/most.X*(plotWidth-left-right) }
	y := func(v float64) float64 { return plotHeight - low - v/most.Y*(plotHeight-above-low) }
	fmt.Fprintf(w, "<text x=\"%d\" y=\"20\" font-weight=\"bold\">%s</text>\n", left, p.Title)
	for i := range 5 {
		part := float64(i) / 4
		vx, vy := part*most.X, part*most.Y
		fmt.Fprintf(w, "<path d=\"M%.1f %.1fH%d\" stroke=\"#ddd\"/>\n", float64(left), y(vy), plotWidth-right)
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", left-6, y(vy)+4, vy)
		fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x(vx), plotHeight-low+16, vx)
	}
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", plotWidth-right, plotHeight-8, p.X)
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\">%s</text>\n", 8, above-6, p.Y)
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		path, command := "", "M"
		for _, at := range l.Points {
			path += fmt.Sprintf("%s%.1f %.1f", command, x(at.X), y(at.Y))
			command = "L"
			fmt.Fprintf(w, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x(at.X), y(at.Y), colour)
		}
		fmt.Fprintf(w, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", path, colour)
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", left+12, above+14+16*i, colour, l.Name)
	}
}

// roundUp finds a number that divides well by four.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10} {
		if v <= step*power {
			return step * power
		}
	}
	return v
}
