package e2e

import (
	"os"
	"testing"

	"github.com/bothy-dev/bothy/test/testserver"
)

const (
	// templateName is the template of all the sandboxes here.
	templateName = testserver.Template
	hangs        = testserver.Hangs
)

// server is a bothy server with a home of its own. It can be killed and started
// again, at another address.
type server struct {
	*testserver.Server
	// seen are sandboxes that a test is done with.
	seen map[string]bool
}

// shared is the server that all tests use but those that kill it.
var shared *server

func TestMain(m *testing.M) {
	code := testserver.Main(m, 6, func(s *testserver.Server) { shared = &server{Server: s} })
	testserver.RemoveVariants()
	os.Exit(code)
}

// stoppedServer is a server for one test, to be started. It is shut down when the
// test ends.
func stoppedServer(t *testing.T) *server {
	t.Helper()
	return &server{Server: testserver.Stopped(t), seen: map[string]bool{}}
}

// ownServer is a server for one test. It makes nothing by itself, so that all
// there is on the host is what the test asked for.
func ownServer(t *testing.T) *server {
	t.Helper()
	s := stoppedServer(t)
	s.NoPool = true
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}
