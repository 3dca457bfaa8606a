package api

import (
	"net/http"

	"github.com/bothy-dev/bothy/api/openapi"
)

// health is the answer of /healthz. A server that answers but has problems is
// degraded, and the answer is 200 all the same: a restart would not help. One
// that stops answers 503, so that others get its requests.
type health struct {
	Status   string   `json:"status"`
	Version  string   `json:"version"`
	Problems []string `json:"problems,omitempty"`
}

func (s *Server) registerHealth() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := health{Status: "ok", Version: s.config.Version}
		if s.config.Problems != nil {
			h.Problems = s.config.Problems()
		}
		if len(h.Problems) > 0 {
			h.Status = "degraded"
		}
		status := http.StatusOK
		if s.chain.Closing() {
			status, h.Status = http.StatusServiceUnavailable, "stopping"
		}
		openapi.WriteJSON(w, status, h)
	})
}
