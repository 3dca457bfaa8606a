package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// claims are the bytes of snapshots that are being written and not stored yet, by project, so
// that concurrent ones do not all use the same rest of a quota.
type claims struct {
	// mu serialises comparisons with a quota.
	mu sync.Mutex
	by map[string]int64
}

// checkSnapshotQuota returns an error if a project's snapshot quota is exhausted.
func (s *Service) checkSnapshotQuota(ctx context.Context, project string) error {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return s.fits(ctx, project, 1)
}

// claim is what a snapshot being written reserves of its project's quota. It is released once
// the snapshot is stored or has failed.
type claim struct {
	s       *Service
	project string
	bytes   int64
}

func (s *Service) newClaim(project string) *claim { return &claim{s: s, project: project} }

// grow reserves more bytes.
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

// put stores the snapshot if the store finds it within the quota, together with those of all
// hosts, and releases the claim in one step, so that its bytes are never counted twice.
func (c *claim) put(ctx context.Context, n *bothy.Snapshot) error {
	all := &c.s.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	quota, err := c.s.quotaFor(ctx, c.project)
	if err != nil {
		return err
	}
	err = c.s.o.Store.AddSnapshot(ctx, n, store.SnapshotQuota{Bytes: quota, Replaced: replaced(ctx)})
	if over := (*store.OverQuota)(nil); errors.As(err, &over) {
		return overQuota(max(0, over.Used-replaced(ctx)), quota, n.SizeBytes)
	}
	if err != nil {
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

// drop releases the claim. The caller holds claims.mu.
func (c *claim) drop() {
	all := &c.s.claims
	if all.by[c.project] -= c.bytes; all.by[c.project] == 0 {
		delete(all.by, c.project)
	}
	c.bytes = 0
}

// fits returns an error if more bytes would exceed a project's quota. The caller holds
// claims.mu.
func (s *Service) fits(ctx context.Context, project string, bytes int64) error {
	quota, err := s.quotaFor(ctx, project)
	if err != nil || quota == 0 {
		return err
	}
	_, used, err := s.o.Store.SnapshotSum(ctx, project)
	if err != nil {
		return err
	}
	used = max(0, used+s.claims.by[project]-replaced(ctx))
	if bytes <= quota-used {
		return nil
	}
	return overQuota(used, quota, bytes)
}

func overQuota(used, quota, bytes int64) error {
	var more string
	if bytes > 1 {
		more = fmt.Sprintf("; this snapshot needs another %d MB", bytes>>20)
	}
	return bothy.Errorf(bothy.CodeQuota, "the project's snapshots use %d MB of their quota of %d MB%s", used>>20, quota>>20, more).
		WithHint("Delete unneeded snapshots: `bothy snapshots` lists them, `bothy snapshots rm` deletes.")
}

// importRoom limits an import to its project's quota and the host's disk. It reserves the size
// in the manifest before the first byte, and then what is actually written.
type importRoom struct {
	*claim
	ctx context.Context
	dir string

	written int64
	// looked is the value of written at the last check of the disk's free space.
	looked int64
}

// roomStep is how many bytes are written between two checks of the disk.
const roomStep = 64 << 20

// open reserves the size in the manifest.
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

// settle reserves what exceeds the size in the manifest.
func (r *importRoom) settle(bytes int64) error {
	if bytes <= r.bytes {
		return nil
	}
	return r.grow(r.ctx, bytes-r.bytes)
}

// look returns an error if the disk would have less free space than the host keeps.
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
		WithHint("Delete unneeded snapshots, or ask the operator for disk space.")
}

func (s *Service) freeDisk(dir string) (int64, error) {
	if s.o.FreeDisk != nil {
		return s.o.FreeDisk(dir)
	}
	return disk.Free(dir)
}

// snapshotQuota returns how many bytes a project's snapshots may take up; 0 means no limit.
func (s *Service) snapshotQuota(ctx context.Context, project string) (int64, error) {
	p, err := s.admission.Plan(ctx, project)
	if err != nil {
		return 0, err
	}
	quota := s.o.Retention.ProjectBytes
	if p.SnapshotsMB != nil && (quota == 0 || *p.SnapshotsMB<<20 < quota) {
		quota = max(*p.SnapshotsMB<<20, 1) // a plan of 0 MB allows none, and must not become "no limit"
	}
	return quota, nil
}

// quotaFor is the quota that holds for a snapshot that is made with ctx; 0 is none.
func (s *Service) quotaFor(ctx context.Context, project string) (int64, error) {
	if ctx.Value(beyondQuotaKey{}) != nil {
		return 0, nil
	}
	return s.snapshotQuota(ctx, project)
}

type beyondQuotaKey struct{}

// beyondQuota lets a snapshot be made although the quota is exhausted.
func beyondQuota(ctx context.Context) context.Context {
	return context.WithValue(ctx, beyondQuotaKey{}, true)
}
