package fake

import (
	"errors"
	"net"
	"testing"
)

func TestFramesAreLostRatherThanWaitedFor(t *testing.T) {
	host, guest := newNetDevice()
	for i := range 2 * backlog {
		if err := host.WriteFrame([]byte{byte(i)}, []byte{byte(i >> 8)}); err != nil {
			t.Fatal(err)
		}
	}
	var b [2]byte
	for i := range backlog {
		if n, err := guest.ReadFrame(b[:]); err != nil || n != 2 || int(b[0])|int(b[1])<<8 != i {
			t.Fatalf("frame %d is %v, %v", i, b[:n], err)
		}
	}
	if err := host.WriteFrame([]byte("fresh")); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.ReadFrame(b[:]); err != nil || string(b[:]) != "fr" {
		t.Errorf("the frame after the lost ones is %q, %v", b, err)
	}
	guest.Close()
	if err := host.WriteFrame([]byte("late")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed network device: %v", err)
	}
}
