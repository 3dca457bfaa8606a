package tree

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/internal/bounded"
)

// A Lister calls each for the entries of an uncompressed tar, of which there may be at most n, with
// where their content begins.
type Lister func(ctx context.Context, f *os.File, n int64, each func(h *tar.Header, offset int64) error) error

// List is the Lister that parses the tar in this process.
func List(ctx context.Context, f *os.File, n int64, each func(*tar.Header, int64) error) error {
	at := &position{r: f}
	return bounded.Tar(ctx, at, n, func(h *tar.Header, _ io.Reader) error { return each(h, at.n) })
}

// WriteEntries writes what Apply needs of a tar's entries, for ReadEntries: the type of each, numbers
// and texts with their lengths, and after the last a byte that is no type of one.
func WriteEntries(ctx context.Context, f *os.File, n int64, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var b []byte
	err := List(ctx, f, n, func(h *tar.Header, offset int64) error {
		b = append(b[:0], h.Typeflag)
		for _, number := range []int64{h.Size, offset, h.Mode, int64(h.Uid), int64(h.Gid), h.ModTime.Unix(), h.Devmajor, h.Devminor} {
			b = binary.AppendVarint(b, number)
		}
		texts := []string{h.Name, h.Linkname}
		for k, v := range h.PAXRecords {
			if strings.HasPrefix(k, xattrPrefix) {
				texts = append(texts, k, v)
			}
		}
		b = binary.AppendUvarint(b, uint64(len(texts)))
		for _, text := range texts {
			b = binary.AppendUvarint(b, uint64(len(text)))
			b = append(b, text...)
		}
		_, err := out.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	if err := out.WriteByte(lastEntry); err != nil {
		return err
	}
	return out.Flush()
}

// lastEntry is no type of an entry.
const lastEntry = 0xff

// ErrEntries says that a list of entries is damaged.
var ErrEntries = errors.New("the list of its entries is damaged")

// broken is the error of a list that cannot be read on.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrEntries
	}
	return err
}

// ReadEntries calls each for the entries that WriteEntries has listed. A tar of size bytes may have at
// most n. The list may come from a process that a hostile tar has taken over.
func ReadEntries(ctx context.Context, r io.Reader, size, n int64, each func(*tar.Header, int64) error) error {
	in := &entries{r: bufio.NewReaderSize(r, 64<<10)}
	for count := int64(1); ; count++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, offset, err := in.next()
		if err != nil || h == nil {
			return err
		}
		if count > n {
			return &bounded.Error{Limit: n, What: "files"}
		}
		if h.Size < 0 || offset < 0 || offset > size || h.Typeflag == tar.TypeReg && h.Size > size-offset {
			return ErrEntries
		}
		err = bounded.CheckHeader(h)
		if err == nil {
			err = each(h, offset)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", bounded.Short(h.Name), err)
		}
	}
}

type entries struct{ r *bufio.Reader }

// next returns nil after the last entry.
func (e *entries) next() (*tar.Header, int64, error) {
	kind, err := e.r.ReadByte()
	if err != nil {
		return nil, 0, broken(err)
	}
	if kind == lastEntry {
		return nil, 0, nil
	}
	var m [8]int64
	for i := range m {
		if m[i], err = binary.ReadVarint(e.r); err != nil {
			return nil, 0, broken(err)
		}
	}
	h := &tar.Header{
		Typeflag: kind, Size: m[0], Mode: m[2], Uid: int(m[3]), Gid: int(m[4]), ModTime: time.Unix(m[5], 0), Devmajor: m[6], Devminor: m[7],
	}
	texts, err := e.texts()
	if err != nil {
		return nil, 0, err
	}
	h.Name, h.Linkname = texts[0], texts[1]
	if len(texts) > 2 {
		h.PAXRecords = map[string]string{}
		for pair := range slices.Chunk(texts[2:], 2) {
			h.PAXRecords[pair[0]] = pair[1]
		}
	}
	return h, m[1], nil
}

// texts are an even number of texts, of no more bytes than an entry may have.
func (e *entries) texts() (list []string, err error) {
	const most = 3*(bounded.MaxPath+1) + bounded.MaxRecords
	n, err := binary.ReadUvarint(e.r)
	if err != nil {
		return nil, broken(err)
	}
	if n < 2 || n%2 != 0 || n > most {
		return nil, ErrEntries
	}
	left := uint64(most)
	for range n {
		size, err := binary.ReadUvarint(e.r)
		if err != nil {
			return nil, broken(err)
		}
		if size > left {
			return nil, ErrEntries
		}
		left -= size
		text := make([]byte, size)
		if _, err := io.ReadFull(e.r, text); err != nil {
			return nil, broken(err)
		}
		list = append(list, string(text))
	}
	return list, nil
}
