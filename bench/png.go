package bench

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// WritePNG writes the same picture as WritePlots, in pixels.
func WritePNG(w io.Writer, plots []Plot) error {
	width, height := sheet(plots)
	all := image.NewRGBA(image.Rect(0, 0, max(1, width), max(1, height)))
	draw.Draw(all, all.Bounds(), image.White, image.Point{}, draw.Src)
	for i, p := range plots {
		p.draw(pixels{all, Point{float64(i % 2 * plotWidth), float64(i / 2 * plotHeight)}})
	}
	return png.Encode(w, all)
}

// pixels is a canvas in a picture, with its origin somewhere in it.
type pixels struct {
	to     *image.RGBA
	origin Point
}

func rgb(colour string) (c color.RGBA) {
	c.A = 0xff
	_, _ = fmt.Sscanf(colour, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	return c
}

func (p pixels) path(colour string, points []Point) {
	c := rgb(colour)
	for i := 1; i < len(points); i++ {
		from, to := points[i-1], points[i]
		steps := math.Ceil(max(math.Abs(to.X-from.X), math.Abs(to.Y-from.Y), 1))
		for s := range int(steps) + 1 {
			part := float64(s) / steps
			p.to.SetRGBA(int(p.origin.X+from.X+part*(to.X-from.X)), int(p.origin.Y+from.Y+part*(to.Y-from.Y)), c)
		}
	}
}

func (p pixels) dot(colour string, at Point) {
	c := rgb(colour)
	for dx := -2; dx <= 2; dx++ {
		for dy := -2; dy <= 2; dy++ {
			if dx*dx+dy*dy < 6 {
				p.to.SetRGBA(int(p.origin.X+at.X)+dx, int(p.origin.Y+at.Y)+dy, c)
			}
		}
	}
}

func (p pixels) text(colour string, at Point, side align, text string) {
	d := font.Drawer{Dst: p.to, Src: image.NewUniform(rgb(colour)), Face: basicfont.Face7x13}
	x := p.origin.X + at.X
	switch width := float64(d.MeasureString(text).Round()); side {
	case centred:
		x -= width / 2
	case toLeft:
		x -= width
	}
	d.Dot = fixed.P(int(x), int(p.origin.Y+at.Y))
	d.DrawString(text)
}
