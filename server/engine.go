package server

import (
	"path/filepath"

	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/uid"
	"github.com/bothy-dev/bothy/internal/embedded"
)

func (s *Server) openEngine(b embedded.Paths) (err error) {
	ids, err := uid.Parse(s.config.Engine.UIDs)
	if err != nil {
		return err
	}
	if s.uids, err = uid.Open(ids); err != nil {
		return err
	}
	s.engine, err = gvisor.New(gvisor.Options{
		Dir: filepath.Join(s.config.Home, "machines"), Sentry: b.Sentry, Guest: b.GuestImage, SentryDigest: b.SentryDigest, GuestDigest: b.GuestDigest,
		CgroupParent: "bothy-" + shortHash(s.config.Home), UIDs: s.uids, Builds: s.builds, Log: s.log,
	})
	if err == nil {
		s.undo.Add(func() { s.engine.Close() })
	}
	return err
}
