package microvm

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
)

func TestNetDeviceIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cable")
	l, err := net.Listen("unix", path) // connections wait in the queue, as with QEMU
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- awaitNetDevice(t.Context(), path) }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Errorf("it did not wait until the connection was closed: %v", err)
	default:
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the machine got %d bytes, %v", n, err)
	}
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("QEMU has ended")
	cancel(gone)
	if err := awaitNetDevice(ctx, path); !errors.Is(err, gone) {
		t.Errorf("without QEMU: %v", err)
	}
}
