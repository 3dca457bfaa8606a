package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Replica starts a server that replicates this one, until the test ends.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	r := &Server{bin: s.bin, as: s.as}
	var err error
	if r.dir, err = os.MkdirTemp("", "pg"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	if r.as != nil {
		if err := os.Chown(r.dir, int(r.as.Uid), int(r.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if r.log, err = os.Create(filepath.Join(r.dir, "log")); err != nil {
		t.Fatal(err)
	}
	copied := r.command("pg_basebackup", "-D", r.data(), "-h", s.dir, "-U", "postgres", "-R", "-X", "stream", "-c", "fast")
	if real, err := filepath.EvalSymlinks(filepath.Join(s.bin, "initdb")); err == nil {
		copied.Path = filepath.Join(filepath.Dir(real), "pg_basebackup") // where only some have links
	}
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	f, err := os.OpenFile(filepath.Join(r.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, "unix_socket_directories = '%s'\n", r.dir)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = r.Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Promote waits until the replica has received everything from s, crashes s, and promotes the
// replica.
func (s *Server) Promote(t testing.TB, replica *Server, crash func()) {
	t.Helper()
	var at string
	s.ask(t, `SELECT pg_current_wal_flush_lsn()::text`, &at)
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var has bool
		replica.ask(t, `SELECT pg_last_wal_replay_lsn() >= '`+at+`'::pg_lsn`, &has)
		if has {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the replica does not follow")
		}
	}
	crash()
	var done bool
	replica.ask(t, `SELECT pg_promote()`, &done)
	if !done {
		t.Fatal("the replica could not be promoted")
	}
}

func (s *Server) ask(t testing.TB, text string, into any) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := c.QueryRow(ctx, text).Scan(into); err != nil {
		t.Fatal(err)
	}
}

// Either is the URL of a database on whichever of the two servers is the primary.
func (s *Server) Either(other *Server, at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	q := u.Query()
	q.Set("host", strings.Join([]string{s.dir, other.dir}, ","))
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}
