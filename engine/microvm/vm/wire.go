// Package vm is the supervisor that runs inside a virtual machine next to the
// sandbox, and the protocol by which the host talks to it. It is the first program of
// the machine's kernel: it assembles the file systems, starts the guest in new
// namespaces, and from then on does what can only be done from outside the sandbox.
// cmd/vminit is its binary; engine/microvm speaks to it.
package vm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The names of the devices that the host plugs into a machine. Disks and ports are
// found by them.
const (
	DiskRoot  = "root"  // the template's image
	DiskGuest = "guest" // the image with the guest
	DiskUpper = "upper" // the writable layer
	DiskFiles = "files" // a tar of initial files
	// DiskModules holds all modules of the kernel.
	DiskModules = "modules"
	PortCtl     = "ctl"  // requests and replies
	PortNews    = "news" // lines of News
)

// The operations of a Request.
const (
	OpStart  = "start"  // put the sandbox together and start the guest
	OpStats  = "stats"  // return what is used
	OpLimits = "limits" // change them
	OpFreeze = "freeze" // stop all of the sandbox at once
	OpThaw   = "thaw"   // let it continue
	OpFiles  = "files"  // send the changed files as a tar; the sandbox is frozen
	OpWake   = "wake"   // continue in a copy: the guest alone, until it is adopted
)

// Request is a request from the host. There is one at a time: the next one ends
// the previous one.
type Request struct {
	Op    string `json:"op"`
	Start *Start `json:"start,omitempty"`
	// Limits may come with any operation on a started sandbox.
	Limits *Limits `json:"limits,omitempty"`
	// UnixNano is the host's time and Entropy some of its randomness.
	UnixNano int64  `json:"unix_nano,omitempty"`
	Entropy  []byte `json:"entropy,omitempty"`
}

// Start says what to start.
type Start struct {
	Hostname string   `json:"hostname"`
	Files    bool     `json:"files"`   // there is a DiskFiles
	Modules  bool     `json:"modules"` // there is a DiskModules
	Limits   Limits   `json:"limits"`
	Env      []string `json:"env"`
	// CPUs is how many processors the machine has; those above Limits.CPUs are idle.
	CPUs int `json:"cpus"`
	// Blocks is how many blocks of memory start offline.
	Blocks int `json:"blocks"`
}

// Limits are the limits inside.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	Processes   int   `json:"processes"`
	CPUs        int   `json:"cpus"`
	// Blocks is how many of Start's blocks must be in use, at least.
	Blocks int `json:"blocks"`
}

// Stats is what the sandbox uses.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	DiskBytes   int64 `json:"disk_bytes"`
	Processes   int   `json:"processes"`
}

// Reply ends a request.
type Reply struct {
	Error string `json:"error,omitempty"`
	// BadImage means that the image caused the error.
	BadImage bool   `json:"bad_image,omitempty"`
	Stats    *Stats `json:"stats,omitempty"`
	// Blocks is how many of Start's blocks are in use.
	Blocks int `json:"blocks"`
}

// News is a machine's notification that a sandbox has exceeded its memory limit, or is below it
// again.
type News struct {
	MemoryBytes int64 `json:"memory_bytes"`
}

// Kind is what a frame holds.
type Kind byte

// The kinds of frames.
const (
	KindRequest Kind = 'q'
	KindData    Kind = 'd' // of the reply to come
	KindReply   Kind = 'r'
)

// A frame consists of a mark, the request's number, a kind, a length and that many bytes. By the
// mark and the number, a reader resynchronises after a previous reader stopped in the middle of
// a frame.
const (
	mark       = "\xb0\x07hy"
	numberSize = 8
	headSize   = len(mark) + numberSize + 1 + 4
	// MaxFrame is the most bytes in a frame. A whole request fits what a pipe takes
	// atomically.
	MaxFrame   = 64 << 10
	maxRequest = 4096 - headSize
	failureTag = "bothy: "
)

// FormatFailure formats the line in which a machine says why it ends, and FindFailure finds it in the
// machine's output.
func FormatFailure(why string) string { return "\n" + failureTag + why + "\n" }

// FindFailure returns the reason from such a line, or "".
func FindFailure(said []byte) string {
	i := bytes.LastIndex(said, []byte("\n"+failureTag))
	if i < 0 {
		return ""
	}
	line, _, _ := bytes.Cut(said[i+1+len(failureTag):], []byte("\n"))
	return string(bytes.TrimSpace(line))
}

// EncodeRequest makes the frame of a request.
func EncodeRequest(number uint64, q Request) ([]byte, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if len(b) > maxRequest {
		return nil, errors.New("the request is too long")
	}
	return frame(number, KindRequest, b), nil
}

func frame(number uint64, k Kind, payload []byte) []byte {
	b := make([]byte, 0, headSize+len(payload))
	b = append(b, mark...)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// Reader reads the frames of one request.
type Reader struct {
	r      io.Reader
	number uint64
	synced bool
}

// NewReader reads the frames of a request from r, and skips leftovers of other requests.
func NewReader(r io.Reader, number uint64) *Reader { return &Reader{r: r, number: number} }

// Next returns the next frame. Its bytes are valid until the next call.
func (f *Reader) Next() (Kind, []byte, error) {
	var head [headSize]byte
	n := 0
	if !f.synced {
		if err := f.sync(); err != nil {
			return 0, nil, err
		}
		f.synced = true
		n = len(mark) + numberSize
	}
	if _, err := io.ReadFull(f.r, head[n:]); err != nil {
		return 0, nil, err
	}
	if n == 0 && !bytes.Equal(head[:len(mark)+numberSize], f.token()) {
		return 0, nil, errors.New("a frame does not belong to the request")
	}
	size := binary.BigEndian.Uint32(head[headSize-4:])
	if size > MaxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is too long", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(f.r, b)
	return Kind(head[headSize-5]), b, err
}

func (f *Reader) token() []byte { return frame(f.number, 0, nil)[:len(mark)+numberSize] }

// sync reads up to the end of the first token.
func (f *Reader) sync() error {
	want := f.token()
	last := make([]byte, len(want))
	if _, err := io.ReadFull(f.r, last); err != nil {
		return err
	}
	for !bytes.Equal(last, want) {
		copy(last, last[1:])
		if _, err := io.ReadFull(f.r, last[len(last)-1:]); err != nil {
			return err
		}
	}
	return nil
}

// nextRequest reads any request and returns its number.
func nextRequest(r io.Reader) (uint64, Request, error) {
	var q Request
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, q, err
	}
	size := binary.BigEndian.Uint32(head[headSize-4:])
	if string(head[:len(mark)]) != mark || Kind(head[headSize-5]) != KindRequest || int(size) > maxRequest {
		return 0, q, errors.New("the host sent no request")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, q, err
	}
	return binary.BigEndian.Uint64(head[len(mark):]), q, json.Unmarshal(b, &q)
}

// CommandsCgroup is the path, as the guest sees it, of the cgroup in which commands start.
const CommandsCgroup = "/sys/fs/cgroup/main"
