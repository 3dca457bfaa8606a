package server

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
)

const (
	// compareTime bounds how long a start waits until it is known which templates the other
	// hosts have.
	compareTime = 10 * time.Second
	// compareEvery is how often the folder of templates is compared with what they have.
	compareEvery = 30 * time.Second
	// imageFile is the one file of a tree of a template.
	imageFile = "rootfs.erofs"
)

// sharedTemplates is how hosts have templates in common; nil for a server that is alone.
func (s *Server) sharedTemplates() *template.Shared {
	if s.hosts == nil {
		return nil
	}
	return &template.Shared{
		Store: s.shared, Host: s.config.Cluster.Name, State: filepath.Join(s.config.Home, "templates.json"), Log: s.log,
		Fetch: s.fetchImage,
	}
}

// fetchImage writes the image of a template to a file of this host.
func (s *Server) fetchImage(ctx context.Context, t *bothy.Template, to string) error {
	name := strings.TrimPrefix(t.Digest, "sha256:")
	first := ""
	if tree, err := s.shared.Tree(ctx, store.TreeTemplates, name); err == nil {
		first = tree.Host
	}
	return s.trees.Fetch(ctx, first, store.TreeTemplates, name, imageFile, to, t.SizeBytes)
}

// openShared opens a file for another host.
func (s *Server) openShared(kind, name, file string) (*os.File, error) {
	if kind == store.TreeTemplates && file == imageFile {
		return s.templates.OpenShared("sha256:" + name)
	}
	return nil, fs.ErrNotExist
}

// compareTemplates compares the folder of templates with what the other hosts have, before this
// host says that it is ready, and again and again until ctx ends.
func (s *Server) compareTemplates(ctx context.Context) {
	if s.hosts == nil {
		return
	}
	once := func(bound time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := s.templates.Sync(ctx); err != nil {
			s.log.Warn("the templates could not be compared with those of the other hosts", "error", err)
		}
	}
	once(compareTime)
	go func() {
		t := time.NewTicker(compareEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				once(compareEvery)
			}
		}
	}()
}
