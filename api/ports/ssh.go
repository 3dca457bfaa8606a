package ports

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// sshHostKeyHeader holds the sandbox's host key in the answer that upgrades the connection.
const sshHostKeyHeader = "X-Ssh-Host-Key"

type sshInput struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	User string `query:"user" maxLength:"256" doc:"Who logs in. Sessions run as this user; the sandbox's own when empty."`
}

func (s *Ports) registerSSH() {
	if s.SSH == nil {
		return
	}
	if len(s.HostKeySecret) == 0 {
		s.HostKeySecret = make([]byte, sha256.Size)
		_, _ = rand.Read(s.HostKeySecret) // never fails
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "connect-ssh", Audit: true, Method: http.MethodGet, Path: "/v1/sandboxes/{id}/ssh", Tag: "Network",
		Summary: "Connect to the SSH server", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusSwitchingProtocols,
		Text: "A WebSocket that carries one SSH connection in binary frames, both ways. The server asks for no password or key, since " +
			"this request is authenticated. Its host key is in X-Ssh-Host-Key of the answer to the upgrade, in the form of a " +
			"known_hosts file, and stays the same for as long as the sandbox exists. `bothy ssh` and the lines of `bothy ssh-config` use this.",
	}, func(_ context.Context, in *sshInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) { s.serveSSH(w, r, in) }), nil
	})
}

func (s *Ports) serveSSH(w http.ResponseWriter, r *http.Request, in *sshInput) {
	if r.Header.Get("Upgrade") == "" {
		s.Fail(w, r, middleware.NeedsSocket("Use `bothy ssh`, or ssh with the lines of `bothy ssh-config`."))
		return
	}
	key := s.hostKey(in.ID)
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	conn, err := s.SSH.DialSSH(r.Context(), in.ID, bothy.SSHRequest{User: in.User, HostKeySeed: key.Seed()})
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	w.Header().Set(sshHostKeyHeader, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))))
	s.serveStream(w, r, conn)
}

// hostKey derives the host key of a sandbox. It is stored nowhere, and is the same on every host
// of a cluster. The sandbox gets it, and no key of another sandbox follows from it.
func (s *Ports) hostKey(id string) ed25519.PrivateKey {
	mac := hmac.New(sha256.New, s.HostKeySecret)
	mac.Write([]byte(id))
	return ed25519.NewKeyFromSeed(mac.Sum(nil))
}
