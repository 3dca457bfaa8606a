package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
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
	wantCode(t, err, bothy.CodeGuest)
}

// A compromised guest may answer a dial with a very long header, or one that never ends.
func TestDialPortBoundsTheAnswer(t *testing.T) {
	for name, header := range map[string]string{
		"a long header": "X-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "an endless one": strings.Repeat("A: b\r\n", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			taken := make(chan int, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
				n, _ := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+header)
				taken <- n
			}()
			g := client.New(func(ctx context.Context) (net.Conn, error) {
				var d net.Dialer
				c, err := d.DialContext(ctx, "tcp", l.Addr().String())
				if err == nil {
					_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
				}
				return c, err
			}, "key")
			if c, err := g.DialPort(t.Context(), 80); err == nil {
				c.Close()
				t.Fatal("the answer was accepted")
			} else if wantCode(t, err, bothy.CodeGuest); !strings.Contains(err.Error(), "too long") {
				t.Errorf("the error is %v", err)
			}
			<-taken
		})
	}
}

// The limit applies to the header alone, not to data of the server in the sandbox that arrives
// with it.
func TestDialPortKeepsWhatFollowsTheHeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := strings.Repeat("0123456789", 50_000)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bothy-tunnel\r\n\r\n"+want)
		}
	}()
	g := client.New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}, "key")
	c, err := g.DialPort(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != want {
		t.Errorf("%d bytes of %d arrived: %v", len(got), len(want), err)
	}
}
