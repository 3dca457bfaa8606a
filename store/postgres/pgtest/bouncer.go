package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// bouncerPort is the port of PgBouncer's socket.
const bouncerPort = "6432"

// Bouncer runs PgBouncer in front of the server until the test ends. It gives each transaction
// any free connection. Bouncer returns the URL of a database there.
func (s *Server) Bouncer(t testing.TB, database string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !isFile(program) {
			t.Skip("PgBouncer is not installed: apt-get install pgbouncer")
		}
	}
	dir := filepath.Join(s.dir, "bouncer")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Any user may log in, as the one named in the databases line.
	settings := fmt.Sprintf(`[databases]
* = host=%[1]s user=postgres
[pgbouncer]
pool_mode = transaction
unix_socket_dir = %[2]s
listen_port = %[3]s
auth_type = any
default_pool_size = 4
max_client_conn = 200
`, s.dir, dir, bouncerPort)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := s.command("", file)
	cmd.Path, cmd.Args[0], cmd.Dir = program, program, dir
	cmd.Stderr = s.log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	at := "postgres:///" + database + "?" + url.Values{"host": {dir}, "port": {bouncerPort}, "user": {"postgres"}}.Encode()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := pgx.Connect(context.Background(), at)
		if err == nil {
			_ = c.Close(context.Background())
			return at
		}
		if time.Now().After(end) {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
