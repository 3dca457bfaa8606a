package apitest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/keepalive"
)

// Metrics implements bothy.MetricsService.
func (w *World) Metrics(ctx context.Context, id string) (*bothy.Metrics, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	m := &bothy.Metrics{Time: Epoch, CPUCount: 1, MemoryBytes: 2, MemoryLimitBytes: 3, HeldAwakeBy: []string{"command"}}
	m.EgressBytes = 4
	return m, nil
}

// MetricsHistory implements bothy.MetricsService, with one measurement for each second of
// Epoch's minute.
func (w *World) MetricsHistory(ctx context.Context, id string, from, to time.Time) ([]*bothy.Metrics, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	list := []*bothy.Metrics{}
	for i := range 60 {
		at := Epoch.Add(time.Duration(i) * time.Second)
		if !at.Before(from) && (to.IsZero() || !at.After(to)) {
			list = append(list, &bothy.Metrics{Time: at, CPUCount: 1, CPUSeconds: float64(i)})
		}
	}
	return list, nil
}

// LatestMetrics implements bothy.MetricsService.
func (w *World) LatestMetrics(ctx context.Context) ([]*bothy.SandboxMetrics, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []*bothy.SandboxMetrics{}
	for id, b := range w.sandboxes {
		if b.ProjectID == caller.ProjectID && b.State == bothy.StateRunning {
			used := 0.5
			list = append(list, &bothy.SandboxMetrics{SandboxID: id, CPUUsed: &used, Metrics: bothy.Metrics{Time: Epoch, CPUCount: 1}})
		}
	}
	return list, nil
}

// DialPort implements bothy.PortService. Port 7 echoes, until the line "bye"; ports 8080 and 9222 are the
// world's Server.
func (w *World) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	switch {
	case port == 7:
		go echo(far)
	case (port == 8080 || port == 9222) && w.Server != nil:
		go serveOne(far, w.Server)
	default:
		return nil, bothy.Errorf(bothy.CodeConflict, "nothing listens on port %d of %s", port, id).WithHint("Start a server there.")
	}
	return near, nil
}

// DialSSH implements bothy.SSHService. It says whom it serves, with which seed, and then echoes.
func (w *World) DialSSH(ctx context.Context, id string, req bothy.SSHRequest) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(ctx, id, bothy.ScopeSandboxesWrite); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go func() {
		fmt.Fprintf(far, "%q %x\n", req.User, req.HostKeySeed)
		echo(far)
	}()
	return near, nil
}

// FetchPort implements api.PortFetcher. It counts in Fetched.
func (w *World) FetchPort(req *http.Request, id string, port uint16) (*http.Response, error) {
	if !keepalive.Keepable(req) {
		return nil, fmt.Errorf("%s %s must not go over a connection that is kept", req.Method, req.URL)
	}
	w.Fetched.Add(1)
	machine := keepalive.NewPool(clock{}).Machine(func(ctx context.Context, port uint16) (net.Conn, error) { return w.DialPort(ctx, id, port) })
	return machine.RoundTrip(req, port)
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) == "bye" {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// serveOne serves a single connection.
func serveOne(c net.Conn, h http.Handler) {
	_ = http.Serve(&oneListener{c: c}, h)
}

type oneListener struct{ c net.Conn }

func (l *oneListener) Accept() (net.Conn, error) {
	if l.c == nil {
		return nil, io.EOF
	}
	c := l.c
	l.c = nil
	return c, nil
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }
