package api

import (
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

func TestHostIsTheOperators(t *testing.T) {
	f := start(t)
	f.failed(bothy.CodeForbidden, f.do("GET", "/v1/host", nil))
	h := decode[bothy.Host](f, f.ok(200, f.do("GET", "/v1/host", nil, header{"Authorization": "Bearer " + apitest.Admin})))
	if h.CPUs != 2 || len(h.Findings) != 1 || h.Findings[0].Status != "ok" {
		t.Errorf("%+v", h)
	}
}
