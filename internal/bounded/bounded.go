// Package bounded reads what comes from outside: from tenants, from sandboxes and from other
// servers. Whatever it reads has a limit on its size and shape, and every read ends with its
// context. Packages that are fed from outside use it in place of decoders without limits;
// internal/layers says which.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// An Error says that input exceeds a limit.
type Error struct {
	Limit int64
	What  string // such as "files"; bytes come first, as in "bytes in a name"
}

func (e *Error) Error() string {
	size, unit := e.Limit, ""
	rest, bytes := strings.CutPrefix(e.What, "bytes")
	switch {
	case !bytes:
	case size >= 1<<30:
		size, unit = size>>30, "GB"
	case size >= 1<<20:
		size, unit = size>>20, "MB"
	default:
		unit = "bytes"
	}
	return fmt.Sprintf("more than %d %s%s", size, unit, rest)
}

// Reader returns a reader of r that fails with an Error after n bytes, and when ctx ends.
func Reader(ctx context.Context, r io.Reader, n int64) io.Reader {
	return &reader{ctx: ctx, r: r, limit: n, left: n}
}

type reader struct {
	ctx         context.Context
	r           io.Reader
	limit, left int64
	err         error
}

func (b *reader) Read(p []byte) (int, error) {
	if b.err == nil && b.ctx.Err() != nil {
		b.err = context.Cause(b.ctx)
	}
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left { // one byte more shows whether there is more
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), &Error{b.limit, "bytes"}
	}
	b.left -= int64(n)
	b.err = err
	return n, err
}

// ReadAll reads all of r, which may have at most n bytes.
func ReadAll(ctx context.Context, r io.Reader, n int64) ([]byte, error) {
	return io.ReadAll(Reader(ctx, r, n))
}

// alive is a reader that stops when its context ends, and can skip if r can.
type alive struct {
	ctx context.Context
	r   io.Reader
}

func (a alive) Read(p []byte) (int, error) {
	if a.ctx.Err() != nil {
		return 0, context.Cause(a.ctx)
	}
	return a.r.Read(p)
}

func (a alive) Seek(offset int64, whence int) (int64, error) {
	if s, ok := a.r.(io.Seeker); ok {
		return s.Seek(offset, whence)
	}
	return 0, errors.ErrUnsupported
}
