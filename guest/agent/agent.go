// Package agent is the guest's agent: the server that runs inside every sandbox as process
// 1 and carries out the host's requests. Only cmd/guest and tests use it.
//
// It speaks Connect over HTTP/1.1 and unencrypted HTTP/2. Like E2B's envd it serves
// process.Process, filesystem.Filesystem and the path /files, and in addition
// bothy.guest.v1.Guest, /bothy/files, /bothy/archive, /bothy/wait, /bothy/tunnel and /bothy/ssh.
package agent

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/code"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/files"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// maxMessage bounds one message of a caller. Anything larger must be streamed.
const maxMessage = 4 << 20

// Options configure an agent. New fills in missing ones.
type Options struct {
	Version string
	// Peer is the only address that is served; the zero value means any.
	Peer netip.Addr
	// Root is put before the paths of the files that hold the sandbox's
	// identity, such as /etc/hostname. It is not a jail.
	Root string
	// SetHostname names the machine; nil leaves its name alone.
	SetHostname func(name string) error
	// SetClock sets the machine's clock; nil leaves it alone.
	SetClock func(t time.Time) error
	// User runs commands and owns files unless the request names another user, and Cwd is where
	// relative paths start. Adoption may change both.
	User string
	Cwd  string
	// Commands limits what is kept about commands.
	Commands command.Config
	Log      *log.Logger
}

// Agent serves the host. Its life is New, Serve, Close.
type Agent struct {
	opt      Options
	accounts *account.DB
	commands *command.Manager
	files    *files.FS
	code     *code.Manager
	idle     idle
	identity identity
	watchers watchers
	sshConns atomic.Int32
	server   *http.Server
	// sentry is set if the kernel is Bothy's gVisor. There a single write is atomic, and
	// randomness comes from the host, so randomness from inside is ignored.
	sentry bool
}

// New returns an agent. There can be only one in a process: it reaps all the
// process's children.
func New(opt Options) (*Agent, error) {
	if opt.User == "" {
		opt.User = bothy.DefaultUser
	}
	if opt.Cwd == "" {
		opt.Cwd = bothy.DefaultCwd
	}
	if opt.Log == nil {
		opt.Log = log.New(os.Stderr, "guest: ", 0)
	}
	commands, err := command.New(opt.Commands)
	if err != nil {
		return nil, err
	}
	accounts := account.New("/etc/passwd", "/etc/group")
	a := &Agent{opt: opt, accounts: accounts, commands: commands, files: files.New(accounts)}
	a.sentry = commands.HasRows()
	a.identity.set(identityState{user: opt.User, cwd: opt.Cwd})
	a.code = code.New(codeHost{a}, filepath.Join("/", opt.Root, "run/bothy/kernels"))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a.server = &http.Server{
		Protocols:         &protocols,
		Handler:           a.handler(),
		ReadHeaderTimeout: 30 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          opt.Log,
	}
	return a, nil
}

func (a *Agent) handler() http.Handler {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // costs more memory than it is worth on a virtual network
		connect.WithInterceptors(errorInterceptor{}),
	}
	mux := http.NewServeMux()
	service := func(name string, make func() (string, http.Handler)) { mux.Handle("/"+name+"/", later(make)) }
	service(processpb.ProcessName, func() (string, http.Handler) { return processpb.NewProcessHandler(&processService{a}, opts...) })
	service(filesystempb.FilesystemName, func() (string, http.Handler) {
		return filesystempb.NewFilesystemHandler(&filesystemService{a}, opts...)
	})
	service(guestpb.GuestName, func() (string, http.Handler) { return guestpb.NewGuestHandler(&guestService{a}, opts...) })
	service(guestpb.CodeName, func() (string, http.Handler) { return guestpb.NewCodeHandler(&codeService{a}, opts...) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /files", a.getEnvdFile)
	mux.HandleFunc("POST /files", a.postEnvdFiles)
	mux.HandleFunc("GET /envs", a.getEnvs)
	mux.HandleFunc("GET /metrics", a.getMetrics)
	mux.HandleFunc("GET /bothy/files", a.getFile)
	mux.HandleFunc("PUT /bothy/files", a.putFile)
	mux.HandleFunc("GET /bothy/archive", a.getArchive)
	mux.HandleFunc("PUT /bothy/archive", a.putArchive)
	mux.HandleFunc("GET /bothy/tunnel", a.tunnel)
	mux.HandleFunc("GET /bothy/ssh", a.ssh)
	mux.HandleFunc("PUT /bothy/wait", a.wait)
	return a.authenticate(a.idle.watch(batched(mux)))
}

// later is a service that is created when it is first called. Each takes a while to create, and
// not all are needed at the start.
func later(make func() (string, http.Handler)) http.Handler {
	made := sync.OnceValue(func() http.Handler {
		_, h := make()
		return h
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) })
}

// Serve answers calls on l until Close. It then returns nil.
func (a *Agent) Serve(l net.Listener) error {
	if a.opt.Peer.IsValid() {
		l = &peerListener{l, a.opt.Peer}
	}
	if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops serving and kills all commands.
func (a *Agent) Close() error {
	err := a.server.Close()
	a.idle.stop()
	a.watchers.close()
	a.code.Close()
	a.commands.Close()
	return err
}

// peerListener closes connections that do not come from its peer.
type peerListener struct {
	net.Listener
	peer netip.Addr
}

func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from, ok := c.RemoteAddr().(*net.TCPAddr); ok && from.AddrPort().Addr().Unmap() == l.peer {
			return c, nil
		}
		c.Close()
	}
}

// request holds what every call says about itself.
type request struct {
	user *account.User
	// base is where relative paths start.
	base string
}

// headerWorkdir makes relative paths start at the work folder instead of the user's home, envd's
// default.
const headerWorkdir = "Bothy-Workdir"

// request reads the headers of a call: the user's name is that of HTTP basic
// authentication, and a group takes the place of the password.
func (a *Agent) request(h http.Header) (request, error) {
	r := http.Request{Header: h}
	name, group, _ := r.BasicAuth()
	if group = strings.TrimSuffix(group, ":"); group != "" {
		name += ":" + group
	}
	return a.requestAs(name, h)
}

func (a *Agent) requestAs(name string, h http.Header) (request, error) {
	id := a.identity.get()
	if name == "" {
		name = id.user
	}
	u, err := a.accounts.Lookup(name)
	if err != nil {
		return request{}, err
	}
	if h.Get(headerWorkdir) != "" {
		return request{u, id.cwd}, nil
	}
	return request{u, u.Home}, nil
}

// call returns the request of a Connect handler.
func (a *Agent) call(ctx context.Context) (request, error) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return request{}, errors.New("no call in the context")
	}
	return a.request(info.RequestHeader())
}

// path reads the headers of a call that names a path.
func (a *Agent) path(ctx context.Context, path string) (*account.User, string, error) {
	r, err := a.call(ctx)
	if err != nil {
		return nil, "", err
	}
	path, err = files.Resolve(r.base, path)
	return r.user, path, err
}
