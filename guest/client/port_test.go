package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestDialPortReachesTheLoopback(t *testing.T) {
	g := adopted(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Fprint(c, "got ", line)
			c.Close()
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for range 2 {
		c, err := g.DialPort(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(c, "hello")
		b, err := io.ReadAll(c)
		if err != nil || string(b) != "got hello\n" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
	}
	l.Close()
	_, err = g.DialPort(t.Context(), port)
	wantCode(t, err, bothy.CodeConflict)
	g.SetKey("wrong")
	_, err = g.DialPort(t.Context(), port)
	wantCode(t, err, bothy.CodeUnauthenticated)
}
