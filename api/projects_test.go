package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/api/apitest"
)

func TestProjects(t *testing.T) {
	f := start(t)
	for _, c := range []struct {
		key, method, path, body string
		status                  int
		want                    string
	}{
		{apitest.Admin, "POST", "/v1/projects", `{"id":"research","plan":"pro"}`, http.StatusCreated, `"plan":"pro"`},
		{apitest.Admin, "POST", "/v1/projects", `{"id":"research"}`, http.StatusConflict, `"code":"conflict"`},
		{apitest.Admin, "GET", "/v1/projects", "", http.StatusOK, `"id":"research"`},
		{apitest.Admin, "GET", "/v1/projects/research", "", http.StatusOK, `"plan":"pro"`},
		{apitest.Admin, "PATCH", "/v1/projects/research", `{"plan":"team"}`, http.StatusOK, `"plan":"team"`},
		{apitest.Admin, "GET", "/v1/projects/none", "", http.StatusNotFound, `"code":"project_not_found"`},
		{apitest.Admin, "POST", "/v1/projects", `{"plan":"pro"}`, http.StatusBadRequest, `id`},
		{apitest.Writer, "GET", "/v1/projects", "", http.StatusForbidden, `"code":"missing_scope"`},
	} {
		f.key = c.key
		var body any
		if c.body != "" {
			body = c.body
		}
		r := f.do(c.method, c.path, body)
		if r.StatusCode != c.status || !strings.Contains(r.body, c.want) {
			t.Errorf("%s %s %s: %d %s, want %d and %s", c.method, c.path, c.body, r.StatusCode, r.body, c.status, c.want)
		}
	}
}
