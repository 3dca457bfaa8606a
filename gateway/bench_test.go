package gateway

import (
	"io"
	"net"
	"runtime"
	"testing"
)

// stream is a server that sends zeros until the client disconnects.
func stream(c net.Conn) {
	defer c.Close()
	b := make([]byte, 256<<10)
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// sink is a server that reads and discards everything.
func sink(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
}

func download(b *testing.B, r io.Reader) {
	buf := make([]byte, 256<<10)
	b.SetBytes(1 << 20)
	b.ResetTimer()
	for range b.N {
		if _, err := io.ReadFull(r, buf[:256<<10]); err != nil {
			b.Fatal(err)
		}
		for range 3 {
			if _, err := io.ReadFull(r, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
}

func BenchmarkDownloadOpen(b *testing.B) {
	l := newLab(b)
	l.net.serve("5.6.7.8:9000", stream)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	download(b, c)
	c.Close()
}

// afterHello is a server that reads a ClientHello and then streams.
func afterHello(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, 64)); err == nil {
		stream(c)
	}
}

func BenchmarkDownloadRestricted(b *testing.B) {
	l := newLab(b)
	l.net.name("good.example", "5.6.7.8")
	l.net.serve("5.6.7.8:443", afterHello)
	l.policy(only("good.example"))
	c, err := l.dialName("good.example", 443)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = c.Write(clientHello(b, "good.example"))
	download(b, c)
	c.Close()
}

func BenchmarkUploadOpen(b *testing.B) {
	l := newLab(b)
	l.net.serve("5.6.7.8:9000", sink)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
}

func BenchmarkConnect(b *testing.B) {
	l := newLab(b)
	l.net.name("good.example", "5.6.7.8")
	l.net.serve("5.6.7.8:443", echo)
	l.net.serve("5.6.7.8:9000", echo)
	for _, mode := range []string{"open", "restricted"} {
		b.Run(mode, func(b *testing.B) {
			addr := "5.6.7.8:9000"
			if l.policy(open); mode == "restricted" {
				l.policy(only("good.example"))
				addr = l.lookup("good.example") + ":443"
			}
			hello := clientHello(b, "good.example")
			for b.Loop() {
				c, err := l.dial(addr)
				if err != nil {
					b.Fatal(err)
				}
				if err := ping(c, string(hello)); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// BenchmarkIdleGateway reports the memory of one idle gateway.
func BenchmarkIdleGateway(b *testing.B) {
	const n = 100
	for range b.N {
		before, g := memory(), runtime.NumGoroutine()
		var all []*Gateway
		for range n {
			host, _ := newNetDevice(65000)
			gw, err := New(host, Options{})
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, gw)
		}
		b.ReportMetric(float64(memory()-before)/n/1024, "KB/gateway")
		b.ReportMetric(float64(runtime.NumGoroutine()-g)/n, "goroutines/gateway")
		for _, gw := range all {
			gw.Close()
		}
	}
}

// BenchmarkIdleConnections reports the memory of one idle connection. Half of it belongs to the
// test's own guest.
func BenchmarkIdleConnections(b *testing.B) {
	const n = 1000
	for range b.N {
		l := newLab(b)
		l.net.serve("5.6.7.8:9000", echo)
		l.policy(open)
		before := memory()
		var conns []net.Conn
		for range n {
			c := l.mustDial("5.6.7.8:9000")
			if err := ping(c, "hello"); err != nil {
				b.Fatal(err)
			}
			conns = append(conns, c)
		}
		b.ReportMetric(float64(memory()-before)/n/1024, "KB/connection")
		for _, c := range conns {
			c.Close()
		}
	}
}
