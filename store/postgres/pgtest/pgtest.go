// Package pgtest runs PostgreSQL for tests: a new cluster in a temporary folder, reached by a
// socket there. If the tests run as root it runs as the user postgres. Only tests import it.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL server.
type Server struct {
	dir    string
	bin    string
	as     *syscall.Credential
	cmd    *exec.Cmd
	exited chan struct{}
	log    *os.File
	made   atomic.Int64
}

// Missing says why no server can be started, or returns "".
func Missing() string {
	if _, err := programs(); err != nil {
		return err.Error()
	}
	return ""
}

// programs returns the folder of the newest installed version of PostgreSQL.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(all) == 0 {
		return "", errors.Join(err, errors.New("PostgreSQL is not installed: apt-get install postgresql"))
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	newest := slices.MaxFunc(all, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// account is the user that runs PostgreSQL, which refuses root; nil means the current user.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// Start creates a cluster and starts its server. With sync it waits for disks as a production
// server does.
func Start(sync bool) (_ *Server, err error) {
	s := &Server{}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.as, err = account(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return nil, err
	}
	init := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C.UTF-8")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	settings := "listen_addresses = ''\nunix_socket_directories = '" + s.dir + "'\nmax_connections = 300\nshared_buffers = 32MB\n"
	if !sync {
		settings += "fsync = off\n"
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(settings)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return s, s.Run()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// Run starts the stopped server, and waits until it responds.
func (s *Server) Run() error {
	s.exited = make(chan struct{})
	s.cmd = s.command("postgres", "-D", s.data())
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr.Pdeathsig = syscall.SIGINT // do not outlive a killed test
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(s.cmd, s.exited)
	for end := time.Now().Add(time.Minute); ; {
		c, err := pgx.Connect(context.Background(), s.URL("postgres"))
		if err == nil {
			return c.Close(context.Background())
		}
		select {
		case <-s.exited:
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
		}
		text, _ := os.ReadFile(s.log.Name())
		return fmt.Errorf("PostgreSQL does not start: %w: %s", err, bytes.TrimSpace(text))
	}
}

// URL is the URL of a database.
func (s *Server) URL(database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {s.dir}, "user": {"postgres"}}.Encode()
}

// Dir is the folder of the server's socket.
func (s *Server) Dir() string { return s.dir }

// Database creates an empty database and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	url, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// NewDatabase is Database for what is no test.
func (s *Server) NewDatabase(ctx context.Context) (string, error) {
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	name := fmt.Sprint("t", s.made.Add(1))
	_, err = c.Exec(ctx, "CREATE DATABASE "+name)
	return s.URL(name), err
}

// Exec executes statements in a database.
func (s *Server) Exec(t testing.TB, url, text string) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// End stops the server with a signal, such as an operator's SIGINT, and waits for it.
func (s *Server) End(sig syscall.Signal) {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	<-s.exited
	s.cmd = nil
}

// Stop stops the server and deletes its cluster.
func (s *Server) Stop() {
	s.End(syscall.SIGINT)
	if s.log != nil {
		s.log.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// ForTest starts a server that stops with the test.
func ForTest(t testing.TB) *Server {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	s, err := Start(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}
