package e2e

import (
	"os"
	"testing"

	"github.com/bothy-dev/bothy/test/testserver"
)

const (
	// templateName is the default template of these tests.
	templateName = testserver.Template
	hangs        = testserver.Hangs
)

// server is a bothy server with its own home. It can be killed and restarted at another address.
type server struct {
	*testserver.Server
	// seen are sandboxes that a test no longer needs.
	seen map[string]bool
	// template is that of its sandboxes by default, or "" for templateName.
	template string
}

// shared is the server of all tests that do not kill it.
var shared *server

func TestMain(m *testing.M) {
	code := testserver.Main(m, 6, func(s *testserver.Server) { shared = &server{Server: s} })
	testserver.RemoveVariants()
	os.Exit(code)
}

// stoppedServer is a server for one test that is not yet started. It is shut down when the test ends.
func stoppedServer(t *testing.T) *server {
	t.Helper()
	return &server{Server: testserver.Stopped(t), seen: map[string]bool{}}
}

// ownServer is a server for one test. It has no pool, so the host has only the machines that the test
// requested.
func ownServer(t *testing.T) *server {
	t.Helper()
	s := stoppedServer(t)
	s.NoPool = true
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}
