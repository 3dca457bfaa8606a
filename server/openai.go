package server

import (
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/openai"
)

// openOpenAI serves OpenAI's containers API on the API's listener.
func (s *Server) openOpenAI() {
	c := s.config.OpenAI
	if !c.Enabled {
		return
	}
	door := openai.New(openai.Services{
		Sandboxes: s.lifecycle, Exec: s.lifecycle, Files: s.lifecycle.Files(), Limits: s.lifecycle, Note: middleware.NoteOuter,
	}, c.Template)
	for _, r := range door.Routes() {
		o := middleware.Outer{ID: r.ID, Scope: r.Scope, Raw: r.Raw, Key: bearer, Fail: openai.Fail}
		s.api.HandleOuter(r.Pattern, o, r.Handler)
	}
}

func bearer(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
