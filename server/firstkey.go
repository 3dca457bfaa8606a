package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/secretfile"
)

// AdminFile is the file in a server's home with the key created at the first start.
const AdminFile = "admin.json"

// FirstKey creates the first key of a new server and returns the path of the file with it:
// bootstrap if given, else the file in this home. It returns "" if keys exist but this home has
// no file with a valid one.
func (s *Server) FirstKey(ctx context.Context, bootstrap string) (path string, err error) {
	path = cmp.Or(bootstrap, filepath.Join(s.config.Home, AdminFile))
	if bootstrap == "" && !s.holdsKey(ctx, path) {
		owner := &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin}}
		made, err := s.tokens.Tokens(bothy.WithCaller(ctx, owner))
		if err != nil {
			return "", err
		}
		if len(made) > 0 { // the operator has revoked the first key: do not create another
			return "", nil
		}
	}
	return path, s.bootstrap(ctx, path)
}

// holdsKey reports whether a file holds a valid key of this server.
func (s *Server) holdsKey(ctx context.Context, path string) bool {
	var c client.Credentials
	b, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(b, &c) == nil && s.Accepts(ctx, c)
}

// Accepts reports whether credentials hold a valid key of this server.
func (s *Server) Accepts(ctx context.Context, c client.Credentials) bool {
	_, err := s.tokens.Authenticate(ctx, c.APIKey)
	return err == nil
}

// bootstrap writes a first admin key to path, unless it holds a valid one.
func (s *Server) bootstrap(ctx context.Context, path string) error {
	var c client.Credentials
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := err == nil && json.Unmarshal(b, &c) == nil && s.Accepts(ctx, c)
	if known && c.URL == s.api.URL() {
		return nil
	}
	if !known {
		t, err := s.tokens.CreateFirst(ctx, "first key")
		if err != nil {
			return fmt.Errorf("make the first key: %w", err)
		}
		c.APIKey = t.Key
	}
	c.URL = s.api.URL()
	if b, err = json.Marshal(c); err != nil {
		return err
	}
	return secretfile.Write(path, append(b, '\n'))
}
