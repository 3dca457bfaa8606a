package suite

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

// portJobs request a page from servers in sandboxes, through the API.
var portJobs = []job{
	{names: []string{"port_http", "port_http_rate"}, own: true, usual: 5, quick: 1, run: askPython},
	{names: []string{"port_http_node", "port_http_node_rate"}, own: true, usual: 5, quick: 1, run: askNode},
	{names: []string{"port_http_go", "port_http_go_rate"}, own: true, usual: 5, quick: 1, run: askGo},
}

const (
	page     = "hello from inside\n"
	pagePort = 8000
)

const pythonPage = `
import http.server

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"hello from inside\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("", 8000), Page).serve_forever()
`

const nodePage = `require("http").createServer((q, r) => r.end("hello from inside\n")).listen(8000)`

// askPython also measures a container, whose server is reached at its own address.
func askPython(ctx context.Context, b *bed, n int) error {
	command := bothy.Command{Args: []string{"python3", "-c", pythonPage}}
	subject, end, err := b.insidePage(ctx, "", command, page, "port_http")
	if err != nil {
		return err
	}
	defer end()
	subjects := []bench.Subject{subject}
	if d := b.docker(ctx); d != nil {
		addr, err := d.Listening(command.Args...)
		if err != nil {
			return err
		}
		at := net.JoinHostPort(addr, fmt.Sprint(pagePort))
		if err := awaitListening(ctx, func() (net.Conn, error) { return net.Dial("tcp", at) }); err != nil {
			return err
		}
		p := bench.Page{URL: "http://" + at + "/", Body: page}
		subjects = append(subjects, p.Ask("docker", "port_http", "port_http_rate"))
	}
	return b.compare(ctx, n, []string{"port_http", "port_http_rate:per second"}, subjects...)
}

func askNode(ctx context.Context, b *bed, n int) error {
	return b.ask(ctx, n, "node-22", bothy.Command{Args: []string{"node", "-e", nodePage}}, page, "port_http_node")
}

// askGo requests a page of zeros from the payload.
func askGo(ctx context.Context, b *bed, n int) error {
	args := append([]string{lab.PayloadPath}, b.o.Lab.Payload...)
	command := bothy.Command{Args: append(args, "serve", fmt.Sprint("0.0.0.0:", pagePort))}
	return b.ask(ctx, n, "", command, strings.Repeat("\x00", len(page)), "port_http_go")
}

func (b *bed) ask(ctx context.Context, n int, template string, command bothy.Command, body, name string) error {
	subject, end, err := b.insidePage(ctx, template, command, body, name)
	if err != nil {
		return err
	}
	defer end()
	return b.compare(ctx, n, []string{name, name + "_rate:per second"}, subject)
}

// insidePage starts a server in a sandbox and returns it as a subject. The payload is there as
// well.
func (b *bed) insidePage(ctx context.Context, template string, command bothy.Command, body, name string) (_ bench.Subject, end func(), err error) {
	s, err := b.server(ctx)
	if err != nil {
		return bench.Subject{}, nil, err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{Template: template, CPU: 2, MemoryMB: 1024})
	if err != nil {
		return bench.Subject{}, nil, err
	}
	p := bench.Page{URL: fmt.Sprintf("%s/v1/sandboxes/%s/ports/%d/", s.Client.URL(), sb.ID, pagePort), Key: s.Key, Body: body}
	if command.Args[0] == lab.PayloadPath {
		p.URL += fmt.Sprint("bytes/", len(body))
		err = putPayload(ctx, s.Target, sb.ID)
	}
	if err == nil {
		_, err = s.Client.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: command, Background: true})
	}
	if err == nil {
		err = awaitListening(ctx, func() (net.Conn, error) { return s.Client.Ports.DialPort(ctx, sb.ID, pagePort) })
	}
	if err != nil {
		end()
		return bench.Subject{}, nil, err
	}
	return p.Ask("bothy", name, name+"_rate"), end, nil
}

func putPayload(ctx context.Context, t bench.Target, id string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open(self)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = t.Client.Files.Write(ctx, id, lab.PayloadPath, io.Reader(f), bothy.WriteOptions{User: "root", Mode: 0o755})
	return err
}

// awaitListening waits until a server accepts connections.
func awaitListening(ctx context.Context, dial func() (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		c, err := dial()
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server to measure does not listen: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
