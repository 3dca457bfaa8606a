package main

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// acceptSocket answers the handshake of a WebSocket. Headers may replace the correct
// ones.
func acceptSocket(w io.Writer, r *http.Request, headers map[string]string) error {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	all := map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": base64.StdEncoding.EncodeToString(sum[:])}
	maps.Copy(all, headers)
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, all[name])
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

var errUnmasked = errors.New("the client sent a frame without a mask")

// readFrame reads one frame of a client, and takes its mask off.
func readFrame(r io.Reader) (op byte, data []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if head[1]&0x80 == 0 {
		return 0, nil, errUnmasked
	}
	size := uint64(head[1] & 0x7f)
	switch size {
	case 126:
		var n uint16
		err = binary.Read(r, binary.BigEndian, &n)
		size = uint64(n)
	case 127:
		err = binary.Read(r, binary.BigEndian, &size)
	}
	if err != nil {
		return 0, nil, err
	}
	var mask [4]byte
	if _, err := io.ReadFull(r, mask[:]); err != nil {
		return 0, nil, err
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, err
	}
	for i := range data {
		data[i] ^= mask[i%4]
	}
	return head[0] & 0x0f, data, nil
}
