package cluster

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// listed is the view of a host that asks which others there are.
type listed struct {
	hosts
	all []bothy.ClusterHost
}

func (l listed) Peers(context.Context) ([]bothy.ClusterHost, error) { return l.all, nil }

// Only a host that says that it has a file, and is to stay, is one that has it.
func TestWhoHasATree(t *testing.T) {
	s := &shared{}
	file := filepath.Join(t.TempDir(), "rootfs.erofs")
	if err := os.WriteFile(file, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	serves := func(err error) http.HandlerFunc {
		x := &Trees{Open: func(kind, name, asked string) (*os.File, error) {
			if kind != "templates" || name != "abc" || asked != "rootfs.erofs" {
				t.Errorf("asked for %s/%s/%s", kind, name, asked)
			}
			if err != nil {
				return nil, err
			}
			return os.Open(file)
		}}
		return x.ServeHTTP
	}
	l := listed{hosts: hosts{self: "one", shared: s}}
	for name, serve := range map[string]http.HandlerFunc{
		"has": serves(nil), "drains": serves(nil), "none": serves(fs.ErrNotExist), "broken": serves(errors.New("the disk is broken")), "away": hangsUp,
	} {
		h := bothy.ClusterHost{Name: name, Address: newPeer(t, name, s, serve).address, State: bothy.HostUp}
		if name == "drains" {
			h.State = bothy.HostDraining
		}
		l.all = append(l.all, h)
	}
	l.all = append(l.all, bothy.ClusterHost{Name: "dead", Address: "127.0.0.1:1", State: bothy.HostDead}, bothy.ClusterHost{Name: "one", Self: true, State: bothy.HostUp})
	a, err := OpenAuthority(t.Context(), l, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	x := NewTrees(l, a, nil)
	for name, want := range map[string]bool{"has": true, "drains": false, "none": false, "broken": false, "away": false, "dead": false, "one": false, "unknown": false} {
		if got, err := x.Has(t.Context(), name, "templates", "abc", "rootfs.erofs"); err != nil || got != want {
			t.Errorf("%s has it: %v, %v", name, got, err)
		}
	}
	to := filepath.Join(t.TempDir(), "fetched")
	if err := x.Fetch(t.Context(), "has", "templates", "abc", "rootfs.erofs", to, 100); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "image" {
		t.Errorf("fetched is %q, %v", b, err)
	}
}
