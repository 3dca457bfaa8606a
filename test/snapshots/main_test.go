package snapshots

import (
	"os"
	"testing"

	"github.com/bothy-dev/bothy/test/testserver"
)

const (
	bare  = testserver.Template
	hangs = testserver.Hangs
)

// shared is the server of all tests that neither kill nor restart it.
var shared *server

func TestMain(m *testing.M) {
	code := testserver.Main(m, 4, func(s *testserver.Server) { shared = &server{s} })
	testserver.RemoveVariants()
	os.Exit(code)
}

// server is a bothy server with its own home, which can be killed and restarted at the same address.
type server struct{ *testserver.Server }

// stoppedServer is a server for one test that is not yet started. It is shut down when the test ends.
func stoppedServer(t *testing.T) *server {
	t.Helper()
	s := &server{testserver.Stopped(t)}
	s.SameAddress = true
	return s
}

// ownServer is a server for one test, with armed failpoints. It has no pool, so the host has only the
// machines that the test requested.
func ownServer(t *testing.T, failpoints ...string) *server {
	t.Helper()
	s := stoppedServer(t)
	s.NoPool = true
	s.restart(t, failpoints...)
	return s
}

// restart starts or restarts the server.
func (s *server) restart(t *testing.T, failpoints ...string) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(failpoints...); err != nil {
		t.Fatal(err)
	}
}

// dies waits until a failpoint has killed the server.
func (s *server) dies(t *testing.T) {
	t.Helper()
	if err := s.Dies(); err != nil {
		t.Fatal(err)
	}
}
