package lifecycle

import (
	"context"
	"fmt"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/snapshot"
)

// claims are the bytes of snapshots that are being made and are not in the store yet,
// by project, so that several at once do not each take the last of a quota.
type claims struct {
	// mu is held while a quota is compared, so that claims come one after the other.
	mu sync.Mutex
	by map[string]int64
}

// checkSnapshotQuota refuses one more snapshot, of unknown size, to a project whose
// snapshots already take up what they may.
func (s *Service) checkSnapshotQuota(ctx context.Context, project string) error {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return s.fits(ctx, project, 1)
}

// claim is what one snapshot in the making has of its project's quota. It is released
// when the snapshot is in the store, or will never be.
type claim struct {
	s       *Service
	project string
	bytes   int64
}

func (s *Service) newClaim(project string) *claim { return &claim{s: s, project: project} }

// grow takes so many bytes more.
func (c *claim) grow(ctx context.Context, bytes int64) error {
	all := &c.s.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := c.s.fits(ctx, c.project, bytes); err != nil {
		return err
	}
	all.by[c.project] += bytes
	c.bytes += bytes
	return nil
}

// put stores the snapshot and gives the claim back in one step, so that a
// comparison with the quota never counts its bytes twice.
func (c *claim) put(ctx context.Context, n *bothy.Snapshot) error {
	all := &c.s.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := c.s.o.Store.PutSnapshot(ctx, n); err != nil {
		return err
	}
	c.drop()
	return nil
}

func (c *claim) release() {
	all := &c.s.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	c.drop()
}

// drop gives the claim back. The caller holds claims.mu.
func (c *claim) drop() {
	all := &c.s.claims
	if all.by[c.project] -= c.bytes; all.by[c.project] == 0 {
		delete(all.by, c.project)
	}
	c.bytes = 0
}

// fits refuses so many bytes more than a project's quota. The caller holds claims.mu.
func (s *Service) fits(ctx context.Context, project string, bytes int64) error {
	quota, err := s.snapshotQuota(ctx, project)
	if err != nil || quota == 0 || ctx.Value(beyondQuotaKey{}) != nil {
		return err
	}
	_, used, err := s.o.Store.SnapshotSum(ctx, project)
	if err != nil {
		return err
	}
	used += s.claims.by[project]
	if bytes, ok := ctx.Value(replacingKey{}).(int64); ok {
		used = max(0, used-bytes)
	}
	if bytes <= quota-used {
		return nil
	}
	var more string
	if bytes > 1 {
		more = fmt.Sprintf(", and this one would take up %d MB more", bytes>>20)
	}
	return bothy.Errorf(bothy.CodeQuota, "the project's snapshots take up %d MB of the %d MB that they may%s", used>>20, quota>>20, more).
		WithHint("Delete snapshots that are not needed: `bothy snapshots` lists them, `bothy snapshots rm` deletes.")
}

// importRoom is the room that an import has: what is left of its project's quota and of
// the host's disk. It is claimed before the first byte, by what the manifest says, and
// counted while bytes are written, by what there is.
type importRoom struct {
	*claim
	ctx context.Context
	dir string

	written int64
	// looked is written as of when the disk's free space was looked at.
	looked int64
}

// roomStep is how many bytes are written between two looks at the disk.
const roomStep = 64 << 20

// open takes the room that a manifest says is needed.
func (r *importRoom) open(m *snapshot.Manifest) error {
	if err := r.grow(r.ctx, m.Size()); err != nil {
		return err
	}
	return r.look(m.Size())
}

// Take implements snapshot.Room.
func (r *importRoom) Take(bytes int64) error {
	r.written += bytes
	if err := r.settle(r.written); err != nil {
		return err
	}
	if r.written-r.looked < roomStep {
		return nil
	}
	r.looked = r.written
	return r.look(0)
}

// settle claims what is there beyond what the manifest said.
func (r *importRoom) settle(bytes int64) error {
	if bytes <= r.bytes {
		return nil
	}
	return r.grow(r.ctx, bytes-r.bytes)
}

// look refuses what would leave the host less of its disk than it keeps for itself.
func (r *importRoom) look(bytes int64) error {
	free, err := r.s.freeDisk(r.dir)
	if err != nil {
		return err
	}
	if free-bytes < r.s.o.Retention.MinFreeDisk {
		return diskFullForImport()
	}
	return nil
}

func diskFullForImport() *bothy.Error {
	return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for the archive").
		WithHint("Delete snapshots that are not needed, or ask the operator for space.")
}

func (s *Service) freeDisk(dir string) (int64, error) {
	if s.o.FreeDisk != nil {
		return s.o.FreeDisk(dir)
	}
	return disk.Free(dir)
}

// snapshotQuota is how many bytes a project's snapshots may take up; 0 means
// any number.
func (s *Service) snapshotQuota(ctx context.Context, project string) (int64, error) {
	p, err := s.admission.Plan(ctx, project)
	if err != nil {
		return 0, err
	}
	quota := s.o.Retention.ProjectBytes
	if p.SnapshotsMB != nil && (quota == 0 || *p.SnapshotsMB<<20 < quota) {
		quota = max(*p.SnapshotsMB<<20, 1) // where none are allowed, the first is
	}
	return quota, nil
}

type beyondQuotaKey struct{}

// beyondQuota lets a snapshot be made although the project's are too many.
func beyondQuota(ctx context.Context) context.Context {
	return context.WithValue(ctx, beyondQuotaKey{}, true)
}
