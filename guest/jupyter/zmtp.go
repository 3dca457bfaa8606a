// Package jupyter talks to Jupyter kernels: as much of their messages as
// running code needs, over as much of ZeroMQ's protocol as those need. Only
// the guest's agent uses it.
//
// A kernel belongs to the user inside, so its messages are bounded here, and never trusted.
package jupyter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxMessage bounds one message; what is longer is read and dropped.
const maxMessage = 24 << 20

// maxFrames bounds the frames of one message.
const maxFrames = 64

// Flags of a ZMTP frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

var (
	errProtocol = errors.New("not a ZeroMQ peer")
	// errTooLong is returned for a message that was dropped. The connection
	// continues.
	errTooLong = errors.New("the message is too long")
)

// socket is one connection of ZMTP 3.0 with the NULL mechanism. One goroutine
// may send while another receives.
type socket struct {
	c net.Conn
	r *bufio.Reader
	w *bufio.Writer
}

// dial connects to a ZeroMQ socket as one of the given type, such as DEALER.
func dial(ctx context.Context, network, address, kind string) (*socket, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &socket{c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = s.handshake(kind)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return s, nil
}

func (s *socket) close() { s.c.Close() }

// handshake exchanges greetings and READY commands.
func (s *socket) handshake(kind string) error {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := s.c.Write(greeting); err != nil {
		return err
	}
	theirs := make([]byte, 64)
	if _, err := io.ReadFull(s.r, theirs); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9]&1 == 0 || theirs[10] < 3 || string(bytes.TrimRight(theirs[12:32], "\x00")) != "NULL" {
		return errProtocol
	}
	if err := s.writeFrame(flagCommand, ready(kind)); err != nil {
		return err
	}
	if err := s.w.Flush(); err != nil {
		return err
	}
	flags, size, err := s.readHeader()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || size < 6 || size > 1<<16 {
		return errProtocol
	}
	command := make([]byte, size)
	if _, err := io.ReadFull(s.r, command); err != nil {
		return err
	}
	if string(command[:6]) != "\x05READY" {
		return errProtocol
	}
	return nil
}

// ready is the body of a READY command.
func ready(kind string) []byte {
	b := []byte("\x05READY")
	for _, p := range [...][2]string{{"Socket-Type", kind}, {"Identity", ""}} {
		b = append(b, byte(len(p[0])))
		b = append(b, p[0]...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p[1])))
		b = append(b, p[1]...)
	}
	return b
}

func (s *socket) writeFrame(flags byte, body []byte) error {
	if len(body) > 255 {
		var head [9]byte
		head[0] = flags | flagLong
		binary.BigEndian.PutUint64(head[1:], uint64(len(body)))
		s.w.Write(head[:])
	} else {
		s.w.Write([]byte{flags, byte(len(body))})
	}
	_, err := s.w.Write(body)
	return err
}

// send sends one message.
func (s *socket) send(frames ...[]byte) error {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := s.writeFrame(flags, f); err != nil {
			return err
		}
	}
	return s.w.Flush()
}

func (s *socket) readHeader() (flags byte, size uint64, err error) {
	var head [8]byte
	if flags, err = s.r.ReadByte(); err != nil {
		return 0, 0, err
	}
	n := 1
	if flags&flagLong != 0 {
		n = 8
	}
	if _, err = io.ReadFull(s.r, head[8-n:]); err != nil {
		return 0, 0, err
	}
	return flags, binary.BigEndian.Uint64(head[:]), nil
}

// readBody allocates memory for a frame as it arrives, not as it is announced.
func (s *socket) readBody(size int64) ([]byte, error) {
	if size <= 64<<10 {
		body := make([]byte, size)
		_, err := io.ReadFull(s.r, body)
		return body, err
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, s.r, size)
	return b.Bytes(), err
}

// receive returns the next message, and errTooLong in the place of one that is
// too long.
func (s *socket) receive() ([][]byte, error) {
	var frames [][]byte
	total := uint64(0)
	for tooLong := false; ; {
		flags, size, err := s.readHeader()
		if err != nil {
			return nil, err
		}
		if size > 1<<40 {
			return nil, errProtocol
		}
		total += size
		isCommand := flags&flagCommand != 0
		if isCommand || total > maxMessage || len(frames) >= maxFrames {
			tooLong = tooLong || !isCommand
			if _, err := io.CopyN(io.Discard, s.r, int64(size)); err != nil {
				return nil, err
			}
		} else {
			body, err := s.readBody(int64(size))
			if err != nil {
				return nil, err
			}
			frames = append(frames, body)
		}
		switch {
		case isCommand || flags&flagMore != 0:
		case tooLong:
			return nil, errTooLong
		default:
			return frames, nil
		}
	}
}
