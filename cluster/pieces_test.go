package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"testing"

	"github.com/bothy-dev/bothy"
)

// listed is the view of a host that asks which others there are.
type listed struct {
	hosts
	all []bothy.ClusterHost
}

func (l listed) Peers(context.Context) ([]bothy.ClusterHost, error) { return l.all, nil }

// A piece is asked of one host after the other, until what one has is good.
func TestPieces(t *testing.T) {
	s := &shared{}
	var wanted Piece
	serves := func(data string, err error) http.HandlerFunc {
		p := &Pieces{Read: func(_ context.Context, p Piece) ([]byte, error) {
			wanted = p
			return []byte(data), err
		}}
		return p.ServeHTTP
	}
	none := newPeer(t, "none", s, serves("", fmt.Errorf("x: %w", fs.ErrNotExist)))
	broken := newPeer(t, "broken", s, serves("", errors.New("the disk is broken")))
	wrong := newPeer(t, "wrong", s, serves("wrong", nil))
	away := newPeer(t, "away", s, hangsUp)
	right := newPeer(t, "right", s, serves("right", nil))
	l := listed{hosts: hosts{self: "one", shared: s}}
	for _, h := range []struct {
		name string
		*peer
	}{{"none", none}, {"broken", broken}, {"wrong", wrong}, {"away", away}, {"right", right}} {
		l.all = append(l.all, bothy.ClusterHost{Name: h.name, Address: h.address, State: bothy.HostUp})
	}
	l.all = append(l.all, bothy.ClusterHost{Name: "dead", Address: "127.0.0.1:1", State: bothy.HostDead}, bothy.ClusterHost{Name: "one", Self: true})
	a, err := OpenAuthority(t.Context(), l, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pieces{Router: NewRouter(RouterOptions{Hosts: l, Authority: a}), Max: 5}
	piece := Piece{Kind: "snapshots", Name: "snp", File: "a/b c", At: 7, Size: 5}
	got := ""
	is := func(want string) func([]byte) bool {
		return func(b []byte) bool { got = string(b); return got == want }
	}
	if err := p.Ask(t.Context(), piece, is("right")); err != nil || got != "right" || wanted != piece {
		t.Errorf("%q of %+v, %v", got, wanted, err)
	}
	if err := p.Ask(t.Context(), piece, is("nobody has it")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a piece that no host has: %v", err)
	}
}
