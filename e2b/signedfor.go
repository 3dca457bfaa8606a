package e2b

import (
	"crypto/hmac"
	"net/http"
)

// signedFor finds the sandbox of a signed address that names none: if all sandboxes are reached
// by one URL, clients omit it. The signature shows which it is. Only E2B's sandboxes are tried,
// and only by a limited number of requests at once.
func (d *Door) signedFor(r *http.Request) string {
	select {
	case d.searching <- struct{}{}:
		defer func() { <-d.searching }()
	case <-r.Context().Done():
		return ""
	}
	all, err := d.Server.Alive(r.Context())
	if err != nil {
		return ""
	}
	q := r.URL.Query()
	got := []byte(q.Get("signature"))
	keys := map[string][]string{}
	for _, sb := range all {
		if sb.Metadata[markName] == "" {
			continue
		}
		ids, ok := keys[sb.ProjectID]
		if !ok {
			if ids, err = d.Keys.IDs(r.Context(), sb.ProjectID); err != nil {
				return ""
			}
			keys[sb.ProjectID] = ids
		}
		for _, id := range ids {
			if hmac.Equal(got, []byte(signature(r.Method, q, d.token(tokenForAgent, id, sb.ID)))) {
				return sb.ID
			}
		}
	}
	return ""
}
