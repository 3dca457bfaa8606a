package server

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
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
		Sandboxes: s.lifecycle, Exec: s.lifecycle, Files: s.membership.files(), Limits: s.lifecycle, Note: middleware.NoteOuter,
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

// sharedFiles are the files of sandboxes, of which Read finds those on other hosts too: a container may be
// given the files of another.
type sharedFiles struct {
	bothy.FileService
	m *member
}

// Read implements bothy.FileService.
func (f sharedFiles) Read(ctx context.Context, id, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	if !f.m.lifecycle.Here(id) {
		if content, info, found, err := f.m.router.ReadFile(ctx, id, path, user); found || err != nil {
			return content, info, err
		}
	}
	return f.FileService.Read(ctx, id, path, user)
}
