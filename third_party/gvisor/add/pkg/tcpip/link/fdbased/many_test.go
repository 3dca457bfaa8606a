package fdbased

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A link asks for one packet at first, for twice as many each time that so many come, and for
// no fewer later.
func TestMorePacketsAreAskedForWhereMoreCome(t *testing.T) {
	var m many
	for _, c := range []struct{ got, next int }{{0, 1}, {1, 2}, {1, 2}, {2, 4}, {3, 4}, {4, 8}, {8, 8}, {1, 8}} {
		if m.got(c.got); m.now() != c.next {
			t.Errorf("after %d packets %d are asked for, not %d", c.got, m.now(), c.next)
		}
	}
	if MaxMsgsPerRecv != 8 {
		t.Errorf("the library asks for %d packets at most: change what this test expects", MaxMsgsPerRecv)
	}
}

type delivered chan []byte

func (d delivered) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, p *stack.PacketBuffer) {
	b := p.ToBuffer()
	d <- b.Flatten()
}
func (delivered) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

// Whether one packet waits or many, all come, whole and in order.
func TestAllPacketsCome(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	e, err := New(&Options{FDs: fds[:1], MTU: 65536, PacketDispatchMode: RecvMMsg, ProcessorsPerChannel: 1})
	if err != nil {
		t.Fatal(err)
	}
	header := make([]byte, 28) // of IPv4 and UDP
	header[0], header[9] = 0x45, 17
	packet := func(i int) []byte { return append(header[:28:28], bytes.Repeat([]byte{byte(i)}, i*97%4000+1)...) }
	const waiting, all = 6, 60
	send := func(i int) {
		for {
			if _, err := unix.Write(fds[1], packet(i)); err != unix.EAGAIN && err != unix.ENOBUFS {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	for i := range waiting {
		send(i)
	}
	got := make(delivered, all)
	e.Attach(got)
	go func() {
		for i := waiting; i < all; i++ {
			send(i)
		}
	}()
	for i := range all {
		select {
		case p := <-got:
			if !bytes.Equal(p, packet(i)) {
				t.Fatalf("packet %d has %d bytes, of %d, not %d of %d", i, len(p), p[len(p)-1], len(packet(i)), byte(i))
			}
		case <-time.After(time.Minute):
			t.Fatalf("packet %d does not come", i)
		}
	}
	e.Attach(nil) // waits for who receives
}
