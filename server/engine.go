package server

import (
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/gvisor/processor"
	"github.com/bothy-dev/bothy/engine/uid"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

// hostProcessor describes this host's processor. A failpoint makes it appear less capable.
func hostProcessor() bothy.Processor {
	p := processor.Host()
	if failpoint.Hit("server.processor") != nil {
		p = p.Shown(bothy.CPULevel2)
	}
	return p
}

// checkProcessor returns an error if the configured CPU level exceeds what the processor
// supports.
func checkProcessor(c config.Config) error {
	level := c.Engine.CPULevel
	if p := hostProcessor(); level != bothy.CPUHost && !p.AtLeast(level) {
		return bothy.Errorf(bothy.CodeInvalid, "engine.cpu_level is %s, and the processor of this host is %s", level, p).
			WithHint("Set engine.cpu_level to a level that the processors of all hosts have, or to host.")
	}
	return nil
}

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
		CgroupParent: "bothy-" + shortHash(s.config.Home), UIDs: s.uids, Builds: s.builds, Log: s.log, Processor: hostProcessor(), CPULevel: s.config.Engine.CPULevel,
	})
	if err == nil {
		s.undo.Add(func() { s.engine.Close() })
	}
	return err
}
