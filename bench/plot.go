package bench

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
)

// A Plot is a picture of lines over the same axes, which begin at 0.
type Plot struct {
	Title, X, Y string
	Lines       []Line
}

// A Line has points sorted by X.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// The size of one plot, and the room around its axes, in pixels.
const (
	plotWidth, plotHeight   = 460, 300
	left, right, above, low = 56, 20, 40, 44
)

var colours = []string{"#1b6ca8", "#c8553d", "#5b8c5a", "#7d5ba6"}

// WritePlots writes plots as one SVG picture, two in a row.
func WritePlots(w io.Writer, plots []Plot) error {
	out := bufio.NewWriter(w)
	width, height := sheet(plots)
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height)
	fmt.Fprintln(out, `<rect width="100%" height="100%" fill="white"/>`)
	for i, p := range plots {
		fmt.Fprintf(out, "<g transform=\"translate(%d,%d)\">\n", i%2*plotWidth, i/2*plotHeight)
		p.draw(vectors{out})
		fmt.Fprintln(out, "</g>")
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// sheet is the size of a picture of plots.
func sheet(plots []Plot) (width, height int) {
	return min(2, len(plots)) * plotWidth, (len(plots) + 1) / 2 * plotHeight
}

// A canvas is what a plot is drawn on, with the origin at the top left.
type canvas interface {
	path(colour string, points []Point)
	dot(colour string, at Point)
	text(colour string, at Point, side align, text string)
}

// align is on which side of its position a text is.
type align string

const (
	toRight align = "start"
	centred align = "middle"
	toLeft  align = "end"
)

const black, grey = "#000000", "#dddddd"

func (p Plot) draw(c canvas) {
	var most Point
	for _, l := range p.Lines {
		for _, at := range l.Points {
			most.X, most.Y = max(most.X, at.X), max(most.Y, at.Y)
		}
	}
	most.X, most.Y = roundUp(most.X), roundUp(most.Y)
	place := func(v Point) Point {
		return Point{left + v.X/most.X*(plotWidth-left-right), plotHeight - low - v.Y/most.Y*(plotHeight-above-low)}
	}
	c.text(black, Point{left, 20}, toRight, p.Title)
	for i := range 5 {
		part := float64(i) / 4
		at := place(Point{part * most.X, part * most.Y})
		c.path(grey, []Point{{left, at.Y}, {plotWidth - right, at.Y}})
		c.text(black, Point{left - 6, at.Y + 4}, toLeft, fmt.Sprintf("%.4g", part*most.Y))
		c.text(black, Point{at.X, plotHeight - low + 16}, centred, fmt.Sprintf("%.4g", part*most.X))
	}
	c.text(black, Point{plotWidth - right, plotHeight - 8}, toLeft, p.X)
	c.text(black, Point{8, above - 6}, toRight, p.Y)
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		var points []Point
		for _, at := range l.Points {
			points = append(points, place(at))
			c.dot(colour, place(at))
		}
		c.path(colour, points)
		c.text(colour, Point{left + 12, float64(above + 14 + 16*i)}, toRight, l.Name)
	}
}

// vectors is an SVG canvas.
type vectors struct{ w io.Writer }

func (v vectors) path(colour string, points []Point) {
	path, command := "", "M"
	for _, at := range points {
		path += fmt.Sprintf("%s%.1f %.1f", command, at.X, at.Y)
		command = "L"
	}
	fmt.Fprintf(v.w, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", path, colour)
}

func (v vectors) dot(colour string, at Point) {
	fmt.Fprintf(v.w, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", at.X, at.Y, colour)
}

func (v vectors) text(colour string, at Point, side align, text string) {
	fmt.Fprintf(v.w, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", at.X, at.Y, side, colour, html.EscapeString(text))
}

// roundUp finds a number that divides evenly by four.
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
