package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
	"github.com/bothy-dev/bothy/store"
)

// A file of a sandbox on another host is read there, for the same caller. Errors arrive as they are.
func TestAFileOnAnotherHostIsRead(t *testing.T) {
	s := &shared{}
	var peers []Peer
	serve := func(w http.ResponseWriter, r *http.Request) {
		peers = append(peers, *PeerFrom(r.Context()))
		if r.URL.Path != "/v1/sandboxes/"+aSandbox+"/files" || r.URL.Query().Get("path") != "/a b" || r.URL.Query().Get("user") != "root" {
			w.Header().Set("Content-Type", problem.ContentType)
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]any{"code": bothy.CodeFileNotFound, "detail": "there is none", "hint": "look"})
			return
		}
		w.Header().Set("X-File-Info", `{"path":"/a b","size":7}`)
		_, _ = io.WriteString(w, "content")
	}
	two, three := newPeer(t, "two", s, serve), newPeer(t, "three", s, hangsUp)
	h := hosts{self: "one", shared: s}
	a, err := OpenAuthority(t.Context(), h, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	x := NewRouter(RouterOptions{Hosts: h, Authority: a})
	ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "p", TokenID: "tok"})

	s.owner = store.Ownership{Host: "two", Address: two.address}
	content, info, found, err := x.ReadFile(ctx, aSandbox, "/a b", "root")
	if err != nil || !found || info.Size != 7 {
		t.Fatal(info, found, err)
	}
	text, err := io.ReadAll(content)
	if err != nil || string(text) != "content" || content.Close() != nil {
		t.Errorf("%q %v", text, err)
	}
	if p := peers[0]; p.Host != "one" || p.Project != "p" || p.TokenID != "tok" {
		t.Errorf("the other host was asked for %+v", p)
	}
	if _, _, found, err := x.ReadFile(ctx, aSandbox, "/other", ""); !found || bothy.ErrorCode(err) != bothy.CodeFileNotFound || bothy.AsError(err).Hint != "look" {
		t.Errorf("one that does not exist: %v", err)
	}
	two.answer = misdirected
	asked := s.asked
	if _, _, found, err := x.ReadFile(ctx, aSandbox, "/a b", "root"); !found || bothy.ErrorCode(err) != bothy.CodeMisdirected || s.asked != asked+2 {
		t.Errorf("one of a sandbox that moves on and on: %v, after %d questions", err, s.asked-asked)
	}
	s.owner = store.Ownership{Host: "three", Address: three.address}
	if _, _, found, err := x.ReadFile(ctx, aSandbox, "/a b", "root"); !found || bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("one on a host that does not answer: %v", err)
	}
	for _, o := range []store.Ownership{{Host: "one"}, {}, {Host: "dead", Dead: true}} {
		s.owner = o
		if _, _, found, err := x.ReadFile(ctx, aSandbox, "/a b", "root"); found || err != nil {
			t.Errorf("one of a sandbox of %+v: %v %v", o, found, err)
		}
	}
}
