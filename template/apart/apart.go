// Package apart parses what templates are made of, which nobody vouches for: it decompresses
// archives, lists the entries of tars and finds packages in images. Where the host allows it, a
// confined process does that, and gives back what is simple to check: bytes, entries, a document.
// Elsewhere the server does it itself, with the same limits.
package apart

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/template/sbom"
	"github.com/bothy-dev/bothy/template/tree"
)

const (
	// maxList limits what is said of a tar's entries, and maxDocument a list of packages.
	maxList, maxDocument = 1 << 30, 256 << 20
	// image is the name of the image in a process that has it open.
	image = "the image"
)

var (
	decompressing = confined.Task{Name: "decompress an archive", Memory: 512 << 20, Seconds: 1800, Output: tree.MaxBytes + 1, Run: decompress}
	listing       = confined.Task{Name: "list an archive", Memory: 512 << 20, Seconds: 300, Output: maxList, Run: list}
	describing    = confined.Task{Name: "find the packages of an image", Memory: 2 << 30, Seconds: 120, Output: maxDocument, Run: describe}
)

// Tasks are what the program must serve.
func Tasks() []confined.Task { return []confined.Task{decompressing, listing, describing} }

// Decompress is bounded.Decompress. What is not compressed is not parsed, and stays in this process.
func Decompress(ctx context.Context, r io.Reader, n int64) (io.ReadCloser, error) {
	const head = 6
	if !confined.Possible() {
		return bounded.Decompress(ctx, r, n)
	}
	in := bufio.NewReaderSize(bounded.Reader(ctx, r, 1<<62), 64<<10)
	if first, _ := in.Peek(head); !bounded.Compressed(first) {
		return bounded.Decompress(ctx, in, n)
	}
	out, err := decompressing.Open(ctx, in, strconv.FormatInt(n, 10))
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{bounded.Reader(ctx, out, n), out}, nil
}

func decompress(ctx context.Context, args []string, in *os.File, out io.Writer) error {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return err
	}
	plain, err := bounded.Decompress(ctx, in, n)
	if err != nil {
		return err
	}
	defer plain.Close()
	_, err = io.Copy(out, plain)
	return err
}

// List is tree.List.
func List(ctx context.Context, f *os.File, n int64, each func(*tar.Header, int64) error) error {
	if !confined.Possible() {
		return tree.List(ctx, f, n, each)
	}
	from, to := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		to.CloseWithError(Index(ctx, f, n, to))
	}()
	err := Read(ctx, f, from, n, each)
	from.CloseWithError(err)
	<-done
	return err
}

// Index writes the list of a tar's entries, for Read.
func Index(ctx context.Context, f *os.File, n int64, w io.Writer) error {
	if !confined.Possible() {
		return tree.WriteEntries(ctx, f, n, w)
	}
	return listing.Do(ctx, f, w, strconv.FormatInt(n, 10))
}

// Read calls each for the entries of a tar, of which r has the list.
func Read(ctx context.Context, f *os.File, r io.Reader, n int64, each func(*tar.Header, int64) error) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return tree.ReadEntries(ctx, r, info.Size(), n, each)
}

func list(ctx context.Context, args []string, in *os.File, out io.Writer) error {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return err
	}
	return tree.WriteEntries(ctx, in, n, out)
}

// SBOM returns the document that lists the packages in a template's image.
func SBOM(ctx context.Context, path string, t *bothy.Template, format string) (json.RawMessage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := json.Marshal(bothy.Template{Name: t.Name, Tag: t.Tag, Digest: t.Digest, Description: t.Description, CreatedAt: t.CreatedAt})
	if err != nil {
		return nil, err
	}
	w := &document{ctx: ctx}
	if args := []string{format, string(about)}; confined.Possible() {
		err = describing.Do(ctx, f, w, args...)
	} else {
		err = describe(ctx, args, f, w)
	}
	return w.Bytes(), err
}

// A document takes memory for its request as it grows.
type document struct {
	bytes.Buffer
	ctx context.Context
}

// Write implements io.Writer.
func (d *document) Write(p []byte) (int, error) {
	if err := bothy.TakeMemory(d.ctx, 2*int64(len(p))); err != nil { // a buffer grows to twice its size
		return 0, err
	}
	return d.Buffer.Write(p)
}

func describe(ctx context.Context, args []string, in *os.File, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("give the format and the template")
	}
	var t bothy.Template
	if err := json.Unmarshal([]byte(args[1]), &t); err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	files, err := tree.ReadFile(ctx, in, image)
	if err != nil {
		return err
	}
	packages, err := sbom.Packages(ctx, files, in)
	if err != nil {
		return err
	}
	return sbom.Write(out, &t, packages, args[0])
}
