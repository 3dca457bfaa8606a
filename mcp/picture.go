package mcp

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // to read them
	"image/jpeg"
	"image/png"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // to read them

	"github.com/bothy-dev/bothy"
)

const (
	// maxPicture is how many bytes a picture is sent with as it is, and after scaling. maxSide
	// bounds the sides of a scaled one: models see no more.
	maxPicture = 256 << 10
	maxSide    = 1568
	// maxOriginal and maxPixels limit what is scaled.
	maxOriginal = 16 << 20
	maxPixels   = 12 << 20
	jpegQuality = 80
)

// scaling lets one picture be decoded at a time, which takes many times its bytes.
var scaling = make(chan struct{}, 1)

// picture returns a picture that is not too large to be sent, and what was done to it.
func picture(ctx context.Context, mime string, b []byte) (*mcp.ImageContent, string, error) {
	if len(b) <= maxPicture {
		return &mcp.ImageContent{MIMEType: mime, Data: b}, "", nil
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, "", bothy.Errorf(bothy.CodeInvalid, "the picture of %d bytes cannot be read: %v", len(b), err)
	}
	if len(b) > maxOriginal || c.Width > maxPixels/max(1, c.Height) {
		return nil, "", bothy.Errorf(bothy.CodeTooLarge, "the picture has %d bytes and %d x %d pixels, too many to be shown", len(b), c.Width, c.Height).
			WithHint("Make it smaller in the sandbox first.")
	}
	select {
	case scaling <- struct{}{}:
		defer func() { <-scaling }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	from, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, "", bothy.Errorf(bothy.CodeInvalid, "the picture of %d bytes cannot be read: %v", len(b), err)
	}
	for side := maxSide; ; side = side * 3 / 4 {
		scaled := smaller(from, side)
		small, mime, err := encoded(scaled)
		if err != nil {
			return nil, "", err
		}
		if len(small) <= maxPicture {
			return &mcp.ImageContent{MIMEType: mime, Data: small}, fmt.Sprintf("[The picture has %d x %d pixels and %d bytes. It is shown with %d x %d pixels.]",
				c.Width, c.Height, len(b), scaled.Bounds().Dx(), scaled.Bounds().Dy()), nil
		}
	}
}

// smaller scales a picture so that no side is longer, on white.
func smaller(from image.Image, side int) *image.RGBA {
	w, h := from.Bounds().Dx(), from.Bounds().Dy()
	if long := max(w, h); long > side {
		w, h = max(1, w*side/long), max(1, h*side/long)
	}
	to := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(to, to.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.ApproxBiLinear.Scale(to, to.Bounds(), from, from.Bounds(), draw.Over, nil)
	return to
}

// encoded is a picture as PNG, which keeps text sharp, or as JPEG if that would be too large.
func encoded(m image.Image) ([]byte, string, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil || b.Len() <= maxPicture {
		return b.Bytes(), "image/png", err
	}
	b.Reset()
	err := jpeg.Encode(&b, m, &jpeg.Options{Quality: jpegQuality})
	return b.Bytes(), "image/jpeg", err
}
