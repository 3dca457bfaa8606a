package jupyter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// fakeKernel answers as a kernel does, with a function that runs code. The client's replies are sent to
// that function's out.
type fakeKernel struct {
	t    *testing.T
	conn *Connection
	key  *Kernel // signs
	run  func(code string, out func(kind string, content any))
	// late is how many more requests must come before one is answered.
	late int

	iopub chan *socket
}

// startFake serves a kernel on the sockets of a new connection.
func startFake(t *testing.T, run func(code string, out func(kind string, content any))) *Connection {
	t.Helper()
	return startLateFake(t, 0, run)
}

// startLateFake is startFake for a kernel that answers late.
func startLateFake(t *testing.T, late int, run func(code string, out func(kind string, content any))) *Connection {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	conn, err := NewConnection(dir, os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{t: t, conn: conn, key: &Kernel{conn: conn, session: "kernel"}, run: run, late: late, iopub: make(chan *socket, 1)}
	k.listen(portShell, "ROUTER", k.serveShell)
	k.listen(portControl, "ROUTER", k.serveShell)
	k.listen(portIOPub, "PUB", func(s *socket) {
		if m, err := s.receive(); err != nil || len(m) != 1 || string(m[0]) != "\x01" {
			t.Errorf("subscription %q, %v", m, err)
		}
		k.iopub <- s
	})
	return conn
}

func (k *fakeKernel) listen(port int, kind string, serve func(*socket)) {
	l, err := net.Listen("unix", fmt.Sprintf("%s-%d", k.conn.prefix, port))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.t.Cleanup(func() { c.Close() })
			s := &socket{c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
			if err := s.handshake(kind); err != nil {
				return // the client has given up
			}
			go serve(s)
		}
	}()
}

func (k *fakeKernel) serveShell(s *socket) {
	var waiting []func()
	for {
		frames, err := s.receive()
		if err != nil {
			return
		}
		m, _, ok := k.key.parse(frames)
		if !ok {
			k.t.Error("a request is not signed")
			return
		}
		waiting = append(waiting, func() { k.answer(s, m, frames[2]) })
		if len(waiting) > k.late {
			waiting[0]()
			waiting = waiting[1:]
		}
	}
}

// answer runs a request and replies to its header.
func (k *fakeKernel) answer(shell *socket, m incoming, parent []byte) {
	iopub := <-k.iopub
	defer func() { k.iopub <- iopub }()
	send := func(s *socket, topic, kind string, content any) {
		frames, err := k.key.message(randomID(), kind, content)
		if err != nil {
			k.t.Error(err)
			return
		}
		frames[3] = parent
		frames[1] = k.key.sign(frames[2:]...)
		if topic != "" {
			frames = append([][]byte{[]byte(topic)}, frames...)
		}
		s.send(frames...)
	}
	out := func(kind string, content any) { send(iopub, "kernel.x."+kind, kind, content) }
	out("status", map[string]string{"execution_state": "busy"})
	switch m.kind {
	case "execute_request":
		var c struct{ Code string }
		json.Unmarshal(m.content, &c)
		k.run(c.Code, out)
		send(shell, "", "execute_reply", map[string]any{"status": "ok", "execution_count": 7})
	case "kernel_info_request":
		send(shell, "", "kernel_info_reply", map[string]any{"protocol_version": "5.3"})
	case "interrupt_request":
		send(shell, "", "interrupt_reply", map[string]any{})
	}
	out("status", map[string]string{"execution_state": "idle"})
}

func connect(t *testing.T, conn *Connection) *Kernel {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k, err := Connect(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func TestExecute(t *testing.T) {
	conn := startFake(t, func(code string, out func(string, any)) {
		out("stream", map[string]string{"name": "stdout", "text": "ran " + code})
		out("display_data", map[string]any{"data": map[string]any{"text/plain": "x", "application/json": map[string]int{"a": 1}}})
		out("error", map[string]any{"ename": "E", "evalue": "v", "traceback": []string{"a", "b"}})
		out("something_new", 5)
	})
	k := connect(t, conn)
	for range 3 {
		var got []string
		reply, err := k.Execute(t.Context(), "this", Options{}, func(o Output) error {
			got = append(got, fmt.Sprintf("%s|%s|%s|%v", o.Stream, o.Text, o.Data["application/json"], o.Error))
			return nil
		})
		if err != nil || reply.ExecutionCount != 7 || reply.Truncated {
			t.Fatal(reply, err)
		}
		want := `stdout|ran this||<nil> ||{"a":1}|<nil> |||&{E v a` + "\nb}"
		if s := strings.Join(got, " "); s != want {
			t.Errorf("got %q, want %q", s, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := k.Interrupt(ctx); err != nil {
		t.Error(err)
	}
}

// On a busy host, a kernel that starts answers a question after the next was asked.
func TestAKernelThatAnswersLate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it fails after this
	defer cancel()
	k, err := Connect(ctx, startLateFake(t, 1, nil))
	if err != nil {
		t.Fatal(err)
	}
	k.Close()
}

func TestExecuteThatFailsHalfway(t *testing.T) {
	enough := errors.New("enough")
	hang := make(chan struct{})
	conn := startFake(t, func(code string, out func(string, any)) {
		out("stream", map[string]string{"name": "stdout", "text": "x"})
		if code == "hang" {
			<-hang
		}
	})
	defer close(hang)
	k := connect(t, conn)
	if _, err := k.Execute(t.Context(), "", Options{}, func(Output) error { return enough }); err != enough {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := k.Execute(ctx, "hang", Options{}, func(Output) error { cancel(); return nil }); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestKernelThatDies(t *testing.T) {
	var k *Kernel
	conn := startFake(t, func(code string, out func(string, any)) { k.shell.close() })
	k = connect(t, conn)
	if _, err := k.Execute(t.Context(), "", Options{}, nil); err != ErrClosed {
		t.Errorf("got %v", err)
	}
	<-k.Closed()
	if _, err := k.Execute(t.Context(), "", Options{}, nil); err != ErrClosed {
		t.Errorf("got %v", err)
	}
}

// A kernel whose output nobody reads must not fill the agent's memory, and its end must still be noticed.
func TestUnreadOutputIsBounded(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	sent := make(chan struct{})
	conn := startFake(t, func(code string, out func(string, any)) {
		for range 40 {
			out("stream", map[string]string{"name": "stdout", "text": text})
		}
		out("display_data", map[string]any{"data": map[string]string{"text/plain": strings.Repeat("y", maxMessage)}})
		close(sent)
	})
	k := connect(t, conn)
	total := 0
	reply, err := k.Execute(t.Context(), "", Options{}, func(o Output) error {
		<-sent
		total += o.size()
		return nil
	})
	if err != nil || !reply.Truncated || total > maxQueued+2*len(text) {
		t.Errorf("took %d bytes, %+v, %v", total, reply, err)
	}
}

func TestMessagesThatAreNotTheKernels(t *testing.T) {
	k := &Kernel{conn: &Connection{key: "key"}}
	other := &Kernel{conn: &Connection{key: "other"}}
	good, _ := k.message("id", "status", map[string]string{})
	forged, _ := other.message("id", "status", map[string]string{})
	for name, frames := range map[string][][]byte{
		"nothing": nil, "no delimiter": good[1:], "short": good[:4], "forged": forged,
		"changed": append(append([][]byte{}, good[:5]...), []byte(`{"a":1}`)),
	} {
		if _, _, ok := k.parse(frames); ok {
			t.Errorf("%s: taken for a message", name)
		}
	}
	if m, _, ok := k.parse(append([][]byte{[]byte("topic")}, good...)); !ok || m.kind != "status" {
		t.Errorf("a good message is refused: %+v", m)
	}
}

func TestNoKernel(t *testing.T) {
	conn, err := NewConnection(t.TempDir(), os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, conn); err == nil {
		t.Error("connected to nothing")
	}
	if st, err := os.Stat(conn.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key can be read by others: %v, %v", st, err)
	}
}

// buffer is a connection with fixed data to read.
type buffer struct {
	net.Conn
	io.Reader
}

func (b buffer) Read(p []byte) (int, error)  { return b.Reader.Read(p) }
func (b buffer) Write(p []byte) (int, error) { return len(p), nil }

func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 1, 'x'})
	f.Add([]byte{1, 1, 'x', 4, 2, 'a', 'b', 0, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 3, 'a', 'b', 'c'})
	f.Add([]byte{3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := buffer{Reader: bytes.NewReader(b)}
		s := &socket{c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
		for {
			frames, err := s.receive()
			if err == errTooLong {
				continue
			}
			if err != nil {
				return
			}
			if len(frames) == 0 || len(frames) > maxFrames {
				t.Fatalf("%d frames", len(frames))
			}
		}
	})
}

func FuzzHandshake(f *testing.F) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	f.Add(append(greeting, append([]byte{4, byte(len(ready("PUB")))}, ready("PUB")...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := buffer{Reader: bytes.NewReader(b)}
		s := &socket{c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
		if err := s.handshake("SUB"); err == nil && len(b) < 64+2+6 {
			t.Error("shook hands with too little")
		}
	})
}
