// Package pretend is a server for tests of the command line: the services of a real one, over
// sandboxes that are folders of this host. It needs no root. Only tests use it.
package pretend

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/snapshot"
)

// Key opens everything. ReadKey may only read.
const (
	Key     = "bothy_0000000000000000000000000000000000000000000000000000000000000001"
	ReadKey = "bothy_0000000000000000000000000000000000000000000000000000000000000002"
)

func init() { snapshot.WorkFactor = 10 } // a guess may be cheap here

// World is a server.
type World struct{ *Server }

// New opens the server of a folder.
func New(dir string) (World, error) {
	ctx := context.Background()
	s, err := open(ctx, dir)
	if err != nil {
		return World{}, err
	}
	for key, t := range map[string]bothy.Token{
		Key:     {ID: "tok_1", Name: "everything", Scopes: bothy.AllScopes},
		ReadKey: {ID: "tok_2", Name: "read only", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}},
	} {
		t.ProjectID, t.CreatedAt = bothy.DefaultProject, time.Now().UTC()
		if err := s.addKey(ctx, key, t); err != nil {
			s.Close()
			return World{}, err
		}
	}
	return World{s}, nil
}

func (w World) services() api.Services {
	s := w.Server.services()
	s.Sandboxes, s.Network = pages{s.Sandboxes}, network{s.Network}
	return s
}

// Handler is the REST API of a world.
func (w World) Handler() http.Handler {
	return api.New(w.services(), api.Config{LinkKey: []byte("pretend")})
}

// pages are of two sandboxes, so that clients must turn them.
type pages struct{ bothy.SandboxService }

func (p pages) List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	f.Limit = 2
	return p.SandboxService.List(ctx, f)
}

// network tells what no sandbox here does.
type network struct{ bothy.NetworkService }

func (n network) NetworkLog(ctx context.Context, id string, since time.Time, follow bool, fn func(bothy.NetworkDecision) error) error {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, d := range []bothy.NetworkDecision{
		{Time: at, Protocol: "tls", Name: "api.example.com", Port: 443, Allowed: true, Rule: "domain:api.example.com"},
		{Time: at, Protocol: "tls", Name: "api.example.com", Port: 443, Allowed: true, Closed: true, BytesOut: 900, BytesIn: 3 << 20},
		{Time: at, Protocol: "tcp", Address: netip.MustParseAddr("192.0.2.1").String(), Port: 25, Reason: "the address is not in the list", Repeated: 3},
		{Time: at, Protocol: "dns", Name: "evil\x1b[2J.example.com", Reason: "the name is not in the list"},
	} {
		if err := fn(d); err != nil {
			return err
		}
	}
	return n.NetworkService.NetworkLog(ctx, id, since, follow, fn)
}
