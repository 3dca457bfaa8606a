// Package ssh is a sandbox's SSH server. One process of the guest's program serves one
// connection, as the user who logs in, so that the kernel decides what the connection may do.
// There is no server while there is no connection.
//
// The connection comes through the API, which has authenticated the caller and encrypts the
// bytes on the network. So the server asks for no further proof, and its host key is derived by
// the host's side, which also tells it to the client.
package ssh

import (
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// maxChannels limits the sessions and forwarded connections of one connection. x/crypto
	// holds up to 2 MiB of unread data for each.
	maxChannels = 128
	// maxListeners limits the ports that one connection forwards from the sandbox.
	maxListeners = 32

	handshakeTimeout = 30 * time.Second
	dialTimeout      = 10 * time.Second
)

// Config is what a server needs to know.
type Config struct {
	HostKey ed25519.PrivateKey
	// Env is the environment of sessions. SHELL and HOME in it are the user's.
	Env []string
	// Home is where sessions start.
	Home string
	// Shell runs commands.
	Shell string
	// Keepalive is how often a silent client is asked whether it is there. One that has not
	// answered by the next time is cut off. Without it none is asked.
	Keepalive time.Duration
}

// server serves one connection.
type server struct {
	cfg   Config
	conn  *ssh.ServerConn
	slots chan struct{} // holds a token for each open channel

	mu        sync.Mutex
	listeners map[string]net.Listener // by address, as the client names it
}

// Serve serves one connection until it ends. What its sessions have started is left running.
func Serve(c net.Conn, cfg Config) error {
	defer c.Close()
	signer, err := ssh.NewSignerFromKey(cfg.HostKey)
	if err != nil {
		return err
	}
	sc := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-Bothy"}
	sc.AddHostKey(signer)
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	conn, channels, requests, err := ssh.NewServerConn(c, sc)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Time{})
	s := &server{cfg: cfg, conn: conn, slots: make(chan struct{}, maxChannels), listeners: map[string]net.Listener{}}
	defer s.close()
	go s.requests(requests)
	if cfg.Keepalive > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go s.keepAlive(ctx)
	}
	for n := range channels {
		select {
		case s.slots <- struct{}{}:
			go func() {
				defer func() { <-s.slots }()
				s.open(n)
			}()
		default:
			_ = n.Reject(ssh.ResourceShortage, "this connection has too many channels; open another one")
		}
	}
	return nil
}

// close closes the forwarded ports.
func (s *server) close() {
	s.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
}

// keepAlive cuts off a client that does not answer, such as the one of the sandbox of which this
// is a copy.
func (s *server) keepAlive(ctx context.Context) {
	for {
		asked := time.AfterFunc(2*s.cfg.Keepalive, func() { s.conn.Close() })
		_, _, err := s.conn.SendRequest("keepalive@openssh.com", true, nil)
		asked.Stop()
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.cfg.Keepalive):
		}
	}
}

// open serves one channel to its end.
func (s *server) open(n ssh.NewChannel) {
	switch n.ChannelType() {
	case "session":
		ch, requests, err := n.Accept()
		if err != nil {
			return
		}
		newSession(s.cfg, ch).serve(requests)
	case "direct-tcpip":
		var to struct {
			Host       string
			Port       uint32
			Originator string
			From       uint32
		}
		if ssh.Unmarshal(n.ExtraData(), &to) != nil {
			_ = n.Reject(ssh.ConnectionFailed, "malformed request")
			return
		}
		s.dial(n, "tcp", net.JoinHostPort(to.Host, strconv.FormatUint(uint64(to.Port), 10)))
	case "direct-streamlocal@openssh.com":
		var to struct {
			Path     string
			Reserved string
			Unused   uint32
		}
		if ssh.Unmarshal(n.ExtraData(), &to) != nil {
			_ = n.Reject(ssh.ConnectionFailed, "malformed request")
			return
		}
		s.dial(n, "unix", to.Path)
	default:
		_ = n.Reject(ssh.UnknownChannelType, "not supported")
	}
}

// dial connects a channel to an address as seen from the sandbox.
func (s *server) dial(n ssh.NewChannel, network, address string) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, requests, err := n.Accept()
	if err != nil {
		c.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	join(ch, c)
}

// join copies bytes between a channel and a connection. Each end of a stream is passed on, and an
// error ends both.
func join(ch ssh.Channel, c net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(c, ch); err != nil {
			c.Close()
		} else if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	both.Go(func() {
		if _, err := io.Copy(ch, c); err != nil {
			ch.Close()
		} else {
			_ = ch.CloseWrite()
		}
	})
	both.Wait()
	c.Close()
	ch.Close()
}

// forwarding is the address of a request to forward a port from the sandbox.
type forwarding struct {
	Host string
	Port uint32
}

func (f forwarding) String() string {
	return net.JoinHostPort(f.Host, strconv.FormatUint(uint64(f.Port), 10))
}

// requests answers the requests that concern the whole connection.
func (s *server) requests(in <-chan *ssh.Request) {
	for r := range in {
		var f forwarding
		switch {
		case r.Type == "tcpip-forward" && ssh.Unmarshal(r.Payload, &f) == nil:
			port, err := s.listen(f)
			if err == nil && f.Port == 0 {
				_ = r.Reply(true, ssh.Marshal(struct{ Port uint32 }{port}))
				continue
			}
			_ = r.Reply(err == nil, nil)
		case r.Type == "cancel-tcpip-forward" && ssh.Unmarshal(r.Payload, &f) == nil:
			_ = r.Reply(s.unlisten(f), nil)
		default: // keepalive@openssh.com wants just any answer
			_ = r.Reply(false, nil)
		}
	}
}

// listen forwards a port of the sandbox's loopback to the client. As with OpenSSH's GatewayPorts
// off, the port is on the loopback whatever address the client names.
func (s *server) listen(f forwarding) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil || len(s.listeners) >= maxListeners || f.Port > 1<<16-1 {
		return 0, net.ErrClosed
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(f.Port), 10)))
	if err != nil {
		return 0, err
	}
	f.Port = uint32(l.Addr().(*net.TCPAddr).Port)
	s.listeners[f.String()] = l
	go s.accept(l, f)
	return f.Port, nil
}

func (s *server) unlisten(f forwarding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.listeners[f.String()]
	if ok {
		l.Close()
		delete(s.listeners, f.String())
	}
	return ok
}

// accept offers each connection to the client.
func (s *server) accept(l net.Listener, f forwarding) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
		default:
			c.Close()
			continue
		}
		go func() {
			defer func() { <-s.slots }()
			defer c.Close()
			from := c.RemoteAddr().(*net.TCPAddr)
			ch, requests, err := s.conn.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
				Host       string
				Port       uint32
				Originator string
				From       uint32
			}{f.Host, f.Port, from.IP.String(), uint32(from.Port)}))
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			join(ch, c)
		}()
	}
}
