package e2b

import (
	"net/http"
	"strconv"
	"strings"
)

// oldest are the first versions of E2B's SDKs that find sandboxes by one URL.
var oldest = map[string][3]int{"python": {2, 7, 0}, "js": {2, 11, 1}}

// checkVersion refuses a client that would not find the sandbox that it requests: older versions
// look for it only under a host name, which needs a domain and TLS.
func (d *Door) checkVersion(r *http.Request) error {
	language := r.Header.Get("Lang")
	first, ok := oldest[language]
	if !ok || strings.HasPrefix(r.Host, "api.") {
		return nil
	}
	text := r.Header.Get("Package_version")
	if v, ok := versionOf(text); !ok || !before(v, first) {
		return nil
	}
	return invalid("version %s of E2B's SDK cannot reach sandboxes of this server", text).
		WithHint("Use version %d.%d.%d or newer, or a domain: docs/e2b.md says how", first[0], first[1], first[2])
}

// newest are the newest versions of E2B's SDKs that were tested.
var newest = map[string][3]int{"python": {2, 63, 0}, "js": {2, 51, 0}}

// ServeMissing tells an E2B client that calls something that does not exist that its version may
// be the reason.
func (d *Door) ServeMissing(w http.ResponseWriter, r *http.Request) bool {
	language, text := r.Header.Get("Lang"), r.Header.Get("Package_version")
	last, ok := newest[language]
	if !ok || text == "" {
		return false
	}
	err := unsupported("version %s of E2B's SDK asks for %s %s, which does not exist here", text, r.Method, r.URL.Path).
		WithHint("docs/e2b.md says what there is")
	if v, ok := versionOf(text); ok && before(last, v) {
		_ = err.WithHint("It is newer than %d.%d.%d, the last that was tested: use that, or a newer version of this server", last[0], last[1], last[2])
	}
	Fail(w, r, http.StatusNotImplemented, err)
	return true
}

func versionOf(text string) (v [3]int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func before(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
