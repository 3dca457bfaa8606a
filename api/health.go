package api

import (
	"net/http"

	"github.com/bothy-dev/bothy/api/openapi"
)

// health answers /healthz. A server that answers but has problems is degraded, and the answer is
// still 200: a restart would not help. A server that stops, or whose sandboxes are frozen,
// answers 503, so that others get its requests.
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
		switch frozen := s.frozen(); {
		case s.chain.Closing():
			status, h.Status = http.StatusServiceUnavailable, "stopping"
		case frozen != "":
			status, h.Status, h.Problems = http.StatusServiceUnavailable, "frozen", append([]string{frozen}, h.Problems...)
		}
		openapi.WriteJSON(w, status, h)
	})
}

// frozen is why the sandboxes of this host are frozen, "" if they are not.
func (s *Server) frozen() string {
	if s.config.Frozen == nil {
		return ""
	}
	return s.config.Frozen()
}
