package agents

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/tools/agenttoolset"

	"github.com/bothy-dev/bothy"
)

// placeSkills copies the skills of the session's agent into its sandbox, below skills in the
// working folder, unless they are already there. A skill that cannot be fetched is left out, as
// in the SDK.
func (s *session) placeSkills(ctx context.Context, sandbox string) error {
	var want []string
	for _, skill := range s.about.Agent.Skills {
		want = append(want, skill.ID+"@"+skill.Version)
	}
	if slices.Equal(want, s.now().Skills) {
		return nil
	}
	if err := os.MkdirAll(s.worker.o.Dir, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.worker.o.Dir, "skills-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The SDK unpacks untrusted archives, and keeps them within the folder.
	unpacked := agenttoolset.AgentToolContext{Workdir: dir}
	about := description{ID: s.id, Agent: s.about.Agent}
	here, err := about.forSDK()
	if err != nil {
		return err
	}
	if err := unpacked.SetupSkillsFromSession(ctx, s.worker.client, here, s.requests...); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "skills")); err == nil {
		r, w := io.Pipe()
		go func() { w.CloseWithError(pack(w, dir)) }()
		err := s.worker.o.Files.WriteArchive(ctx, sandbox, bothy.DefaultCwd, bothy.DefaultUser, r)
		r.CloseWithError(io.ErrClosedPipe)
		if err != nil {
			return fmt.Errorf("the skills cannot be copied into the sandbox: %w", err)
		}
	}
	found, _ := os.ReadDir(filepath.Join(dir, "skills"))
	if len(found) < len(want) {
		s.worker.log.Warn("some skills of a session could not be fetched", "session", s.id, "skills", strings.Join(want, " "), "placed", len(found))
		return nil // retried with the next work
	}
	return s.change(ctx, func(r *record) { r.Skills = want })
}

// pack writes a folder as a tar.
func pack(w io.Writer, dir string) error {
	t := tar.NewWriter(w)
	if err := t.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return t.Close()
}
