package snapshot

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Between hosts that trust each other, snapshots are sent as a stream of frames: a JSON header,
// preceded by its length, and the bytes that it announces. Holes stay holes. The connection
// protects against changes, and the last frame against truncation.

// frame is the header of one piece of the stream.
type frame struct {
	// Snapshot begins a snapshot; Fresh is the field of its manifest.
	Snapshot *Manifest `json:"snapshot,omitempty"`
	Fresh    bool      `json:"fresh,omitempty"`
	// Part begins a file of Size bytes. Its data follows in pieces of Length bytes at Offset.
	Part   string `json:"part,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
	// Done ends a snapshot, and End the stream.
	Done bool `json:"done,omitempty"`
	End  bool `json:"end,omitempty"`
}

const (
	maxFrame   = 2 << 20
	carryPiece = 4 << 20
)

// Sender sends snapshots to another host.
type Sender struct {
	z *zstd.Encoder
}

// NewSender starts a stream.
func NewSender(w io.Writer) (*Sender, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	return &Sender{z}, err
}

func (s *Sender) head(f frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = s.z.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// Send sends the snapshot in dir.
func (s *Sender) Send(ctx context.Context, dir string, m *Manifest) error {
	names, err := partNames(dir)
	if err != nil {
		return err
	}
	if err := s.head(frame{Snapshot: m, Fresh: m.Fresh}); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.part(ctx, dir, name); err != nil {
			return fmt.Errorf("send %s: %w", name, err)
		}
	}
	return errors.Join(s.head(frame{Done: true}), s.z.Flush())
}

func (s *Sender) part(ctx context.Context, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if err := s.head(frame{Part: name, Size: size}); err != nil {
		return err
	}
	for from, to := int64(0), int64(0); ; from = to {
		if from, to, err = nextData(f, from, size); err != nil {
			return err
		}
		if from >= size {
			return nil
		}
		to = min(to, from+carryPiece)
		if err := s.head(frame{Offset: from, Length: to - from}); err != nil {
			return err
		}
		if _, err := io.Copy(s.z, &reader{ctx, io.NewSectionReader(f, from, to-from)}); err != nil {
			return err
		}
	}
}

// Close ends a complete stream.
func (s *Sender) Close() error {
	return errors.Join(s.head(frame{End: true}), s.z.Close())
}

// Receiver reads the stream of a Sender.
type Receiver struct {
	z *zstd.Decoder
	r *bufio.Reader
}

// NewReceiver starts reading. Close must be called.
func NewReceiver(r io.Reader) (*Receiver, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(2))
	if err != nil {
		return nil, err
	}
	return &Receiver{z, bufio.NewReaderSize(z, 1<<20)}, nil
}

// Close releases the receiver's resources.
func (r *Receiver) Close() { r.z.Close() }

func (r *Receiver) head() (f frame, err error) {
	var n [4]byte
	if _, err := io.ReadFull(r.r, n[:]); err != nil {
		return f, unlessCut(err)
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > maxFrame {
		return f, damaged("a frame header has %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return f, unlessCut(err)
	}
	return f, json.Unmarshal(b, &f)
}

func unlessCut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Next returns the manifest of the next snapshot, or io.EOF after the last.
func (r *Receiver) Next() (*Manifest, error) {
	f, err := r.head()
	switch {
	case err != nil:
		return nil, err
	case f.End:
		return nil, io.EOF
	case f.Snapshot == nil:
		return nil, damaged("the stream does not start with a manifest")
	}
	f.Snapshot.Fresh = f.Fresh
	return f.Snapshot, nil
}

// Receive writes the files of the snapshot into dir, which must be empty.
func (r *Receiver) Receive(ctx context.Context, dir string, m *Manifest) error {
	var p part
	defer func() { p.Close() }()
	for {
		h, err := r.head()
		if err == nil && (h.Part != "" || h.Done) {
			err = p.finish()
		}
		switch {
		case err != nil:
			return err
		case h.Done && m.Fresh:
			return nil
		case h.Done:
			if err := measure(dir, m); err != nil {
				return err
			}
			return Rewrite(dir, m)
		case h.Part != "":
			err = p.begin(dir, h)
		default:
			err = p.write(&reader{ctx, r.r}, h)
		}
		if err != nil {
			return err
		}
	}
}

// part is the file that is being received, if any.
type part struct {
	*os.File
	size int64
}

// begin creates the file that a header announces.
func (p *part) begin(dir string, h frame) (err error) {
	if h.Part != FilesTar && !isMemoryPart(h.Part) || h.Size < 0 || h.Size > maxPartBytes {
		return damaged("the stream contains %q of %d bytes", h.Part, h.Size)
	}
	path := filepath.Join(dir, h.Part)
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	p.size = h.Size
	p.File, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return err
}

// write writes the bytes that follow a header.
func (p *part) write(from io.Reader, h frame) error {
	if p.File == nil || h.Offset < 0 || h.Length <= 0 || h.Length > carryPiece || h.Offset+h.Length > p.size {
		return damaged("the stream contains data outside of a part")
	}
	n, err := io.Copy(io.NewOffsetWriter(p.File, h.Offset), io.LimitReader(from, h.Length))
	return errors.Join(err, shortOf(n, h.Length))
}

// finish sets the size of the file. What was not sent is a hole.
func (p *part) finish() error {
	if p.File == nil {
		return nil
	}
	err := errors.Join(p.Truncate(p.size), p.Close())
	p.File = nil
	return err
}

func shortOf(n, want int64) error {
	if n < want {
		return io.ErrUnexpectedEOF
	}
	return nil
}
