package e2b

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy/internal/bounded"
)

// plain decompresses calls to the agent's services, which do not support compression, so that
// the audit always sees the request. Files may be sent to the agent compressed.
func plain(r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/process.") && !strings.HasPrefix(r.URL.Path, "/filesystem.") {
		return
	}
	for header, unzipped := range map[string]io.Reader{
		"Content-Encoding":         bounded.Gunzip(r.Context(), r.Body, maxMessage),
		"Connect-Content-Encoding": &unframer{ctx: r.Context(), from: r.Body},
	} {
		if r.Header.Get(header) == "gzip" {
			r.Body = struct {
				io.Reader
				io.Closer
			}{unzipped, r.Body}
			r.Header.Del(header)
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			return
		}
	}
}

// unframer reads the messages of a stream, each after a flag and its length, and returns them
// decompressed.
type unframer struct {
	ctx  context.Context
	from io.Reader
	left []byte
}

const compressed = 1 // the flag of a message

func (u *unframer) Read(p []byte) (int, error) {
	if len(u.left) == 0 {
		if err := u.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, u.left)
	u.left = u.left[n:]
	return n, nil
}

func (u *unframer) next() error {
	var head [5]byte
	if _, err := io.ReadFull(u.from, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxMessage {
		return invalid("a message is larger than %d bytes", maxMessage)
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(u.from, message); err != nil {
		return io.ErrUnexpectedEOF
	}
	if head[0]&compressed != 0 {
		var err error
		if message, err = io.ReadAll(bounded.Gunzip(u.ctx, bytes.NewReader(message), maxMessage)); err != nil {
			return err
		}
	}
	head[0] &^= compressed
	binary.BigEndian.PutUint32(head[1:], uint32(len(message)))
	u.left = append(head[:], message...)
	return nil
}
