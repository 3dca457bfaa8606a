package api

import (
	"net/http"

	"github.com/bothy-dev/bothy/api/openapi"
)

// health answers /healthz. A server that answers but has problems is degraded, and the answer is
// still 200: a restart would not help. A stopping server answers 503, so that others get its
// requests.
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
