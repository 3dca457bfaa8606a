package e2b

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/bothy-dev/bothy"
)

// someKeys are keys of which one is held.
type someKeys struct{ known string }

func (k someKeys) HoldID(_ context.Context, _, id string, _ func(error)) (*bothy.Caller, func(), error) {
	if id != k.known {
		return nil, nil, bothy.Errorf(bothy.CodeUnauthenticated, "revoked")
	}
	return &bothy.Caller{}, func() {}, nil
}

func (k someKeys) IDs(context.Context, string) ([]string, error) { return []string{k.known}, nil }

func TestMayReach(t *testing.T) {
	d := New(Services{Keys: someKeys{"tok_1"}}, Config{PublicPorts: true, Secret: []byte("s")})
	closed := &bothy.Sandbox{ID: "sbx1", Metadata: map[string]string{markName: "x", markPrivate: "1"}}
	public := &bothy.Sandbox{ID: "sbx1", Metadata: map[string]string{markName: "x"}}
	other := &bothy.Sandbox{ID: "sbx1"}
	for name, c := range map[string]struct {
		sb           *bothy.Sandbox
		header, text string
		query        string
		want         bool
	}{
		"nothing":             {sb: closed},
		"its token":           {sb: closed, header: headerTraffic, text: d.token(tokenForTraffic, "tok_1", "sbx1"), want: true},
		"its agent's token":   {sb: other, header: headerAgent, text: d.token(tokenForAgent, "tok_1", "sbx1"), want: true},
		"a revoked key's":     {sb: closed, header: headerTraffic, text: d.token(tokenForTraffic, "tok_2", "sbx1")},
		"another sandbox's":   {sb: closed, header: headerTraffic, text: d.token(tokenForTraffic, "tok_1", "sbx2")},
		"public":              {sb: public, want: true},
		"of another API":      {sb: other},
		"a wrong signature":   {sb: public, query: "?path=/x&signature=v1_x"},
		"a changed signature": {sb: closed, query: "?path=/x&signature=v1_y"},
	} {
		r := httptest.NewRequest("GET", "/files"+c.query, nil)
		if c.header != "" {
			r.Header.Set(c.header, c.text)
		}
		if got := d.MayReach(r, c.sb); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	r := httptest.NewRequest("GET", "/files?path=/x&signature="+signature("GET", map[string][]string{"path": {"/x"}}, d.token(tokenForAgent, "tok_1", "sbx1")), nil)
	if !d.MayReach(r, closed) {
		t.Error("a right signature is refused")
	}
}
