package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/snapshot"
)

// Builds keeps engine builds for as long as they are needed.
type Builds interface {
	// Sweep deletes the builds that no machine holds and no snapshot needs, and returns their
	// names. It calls needed, which counts snapshots by build, after it knows which builds are
	// held.
	Sweep(ctx context.Context, needed func(context.Context) (map[string]int, error)) ([]string, error)
}

// holdBuild keeps the build that wrote some memory until it is released. If the memory cannot
// be restored, why is the reason, worded as the end of a sentence.
func (s *Service) holdBuild(e bothy.Engine, build string) (release func(), why string) {
	none := func() {}
	own := e.Info().Build
	if build == own {
		return none, ""
	}
	keeper, ok := e.(bothy.BuildKeeper)
	if !ok {
		return none, fmt.Sprintf("which this server has not kept; it has %s", own)
	}
	release, err := keeper.HoldBuild(build)
	if err != nil {
		s.log.Warn("cannot restore memory of another engine build", "build", build, "own", own, "error", err)
		return none, bothy.AsError(err).Detail
	}
	return release, ""
}

// foreignBuild says why this server could not restore the memory of a machine, or "". A sandbox
// outlives the server that started it, so its engine build may be an older one.
func (s *Service) foreignBuild(engine, build string) string {
	release, why := s.holdBuild(s.engines.Get(engine), build)
	release()
	if why == "" {
		return ""
	}
	return fmt.Sprintf("the sandbox was started by engine build %s, %s: the snapshot contains its files without its processes", build, why)
}

// sweepBuilds deletes the engine builds that nothing needs. Machines that this server has not
// attached to yet may need any build.
func (s *Service) sweepBuilds(ctx context.Context) error {
	s.mu.Lock()
	unknown := len(s.unattached) > 0
	s.mu.Unlock()
	if s.o.Builds == nil || unknown || s.doubtful() || s.hasUnclaimed() {
		return nil
	}
	_, err := s.o.Builds.Sweep(ctx, s.NeededBuilds)
	return err
}

// NeededBuilds counts the snapshots with memory by the build that wrote it.
func (s *Service) NeededBuilds(ctx context.Context) (map[string]int, error) {
	ids, err := s.o.Blobs.List(ctx)
	if err != nil {
		return nil, err
	}
	// What only another host has is in the records.
	recorded, err := s.o.Store.AllSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, id := range ids {
		here[id] = true
	}
	needed := map[string]int{}
	for _, n := range recorded {
		switch {
		case here[n.ID]:
		case n.Needs != nil:
			needed[n.Needs.Build]++
		default:
			ids = append(ids, n.ID)
		}
	}
	for _, id := range ids {
		text, err := blob.ReadFile(ctx, s.o.Blobs, id, snapshot.ManifestName)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just deleted, or nothing can be restored from it
		}
		if err != nil {
			return nil, fmt.Errorf("cannot determine which engine build snapshot %s needs: %w", id, err)
		}
		build := snapshot.BuildOf(text)
		if build != "" {
			needed[build]++
		}
	}
	return needed, nil
}
