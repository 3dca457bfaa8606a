package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/repack"
)

// skillTime limits fetching a skill and copying it into a sandbox.
const skillTime = 2 * time.Minute

var errNotPlaced = errors.New("the skills cannot be copied into the sandbox")

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
	names, missing := map[string]bool{}, 0
	for _, skill := range s.about.Agent.Skills {
		f, name, err := s.fetchSkill(ctx, skill)
		if err == nil {
			if names[name] {
				name = skill.ID
			}
			names[name] = true
			err = s.placeSkill(ctx, sandbox, f, name)
			f.Close()
		}
		if errors.Is(err, errNotPlaced) {
			return err
		}
		if err != nil {
			missing++
			s.worker.log.Warn("a skill of a session could not be fetched", "session", s.id, "skill", skill.ID, "version", skill.Version, "error", plainly(err))
		}
	}
	if missing > 0 {
		return ctx.Err() // retried with the next work
	}
	return s.change(ctx, func(r *record) { r.Skills = want })
}

// fetchSkill fetches the archive of a skill, into a file without a name, and the name of the
// skill's folder.
func (s *session) fetchSkill(ctx context.Context, skill skill) (f *os.File, name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, skillTime)
	defer cancel()
	versions := s.worker.client.Beta.Skills.Versions
	// The version may be an alias, which only this request resolves.
	v, err := versions.Get(ctx, skill.Version, anthropic.BetaSkillVersionGetParams{SkillID: skill.ID}, s.requests...)
	if err != nil {
		return nil, "", err
	}
	if !idForm.MatchString(v.ID) {
		return nil, "", fmt.Errorf("%.300q is not the id of a version", v.ID)
	}
	name = path.Base(strings.TrimSpace(v.Name))
	if !repack.ProperName(name) || strings.Contains(name, `\`) || name == "/" {
		name = skill.ID
	}
	res, err := versions.Download(ctx, v.ID, anthropic.BetaSkillVersionDownloadParams{SkillID: skill.ID}, s.requests...)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if err := os.MkdirAll(s.worker.o.Dir, 0o700); err != nil {
		return nil, "", err
	}
	w, err := os.CreateTemp(s.worker.o.Dir, "skill-")
	if err != nil {
		return nil, "", err
	}
	defer w.Close()
	defer os.Remove(w.Name())
	if _, err := io.Copy(w, res.Body); err != nil {
		return nil, "", err
	}
	f, err = os.Open(w.Name())
	return f, name, err
}

// placeSkill copies a skill into a sandbox.
func (s *session) placeSkill(ctx context.Context, sandbox string, f *os.File, name string) error {
	ctx, cancel := context.WithTimeout(ctx, skillTime)
	defer cancel()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := s.worker.o.Repack(ctx, f, path.Join("skills", name), w)
		w.CloseWithError(err)
		packed <- err
	}()
	err := s.worker.o.Files.WriteArchive(ctx, sandbox, bothy.DefaultCwd, bothy.DefaultUser, r)
	r.CloseWithError(io.ErrClosedPipe)
	if bad := <-packed; bad != nil && bad != io.ErrClosedPipe {
		return bad
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotPlaced, err)
	}
	return nil
}
