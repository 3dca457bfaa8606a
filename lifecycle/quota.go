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

// imports are the bytes of archives that are being imported, by project, so that concurrent ones do not
// all fill the same rest of a quota.
type imports struct {
	mu sync.Mutex
	by map[string]int64
}

// add adds bytes, also negative ones, and returns how many there were before.
func (i *imports) add(project string, bytes int64) (before int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before = i.by[project]
	if i.by == nil {
		i.by = map[string]int64{}
	}
	if i.by[project] += bytes; i.by[project] == 0 {
		delete(i.by, project)
	}
	return before
}

// checkSnapshotQuota returns an error if a project's snapshot quota is exhausted.
func (s *Service) checkSnapshotQuota(ctx context.Context, project string) error {
	return s.fits(ctx, project, 1)
}

// addSnapshot stores a snapshot if the store finds it within the quota, together with those of all
// hosts. Only this decides: checks before it save the work on a snapshot that would be refused.
func (s *Service) addSnapshot(ctx context.Context, n *bothy.Snapshot) error {
	quota, err := s.quotaFor(ctx, n.ProjectID)
	if err != nil {
		return err
	}
	err = s.o.Store.AddSnapshot(ctx, n, store.SnapshotQuota{Bytes: quota, Replaced: replaced(ctx)})
	if over := (*store.OverQuota)(nil); errors.As(err, &over) {
		return overQuota(max(0, over.Used-replaced(ctx)), quota, n.SizeBytes)
	}
	return err
}

// fits returns an error if more bytes would exceed a project's quota now.
func (s *Service) fits(ctx context.Context, project string, bytes int64) error {
	return s.fitsWith(ctx, project, s.imports.add(project, 0), bytes)
}

// fitsWith is fits with the size of the imports in progress.
func (s *Service) fitsWith(ctx context.Context, project string, imported, bytes int64) error {
	quota, err := s.quotaFor(ctx, project)
	if err != nil || quota == 0 {
		return err
	}
	_, used, err := s.o.Store.SnapshotSum(ctx, project)
	if err != nil {
		return err
	}
	used = max(0, used+imported-replaced(ctx))
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

// importRoom limits an import to its project's quota and the host's disk. It checks the size in the
// manifest before the first byte, and then what is actually written.
type importRoom struct {
	s       *Service
	ctx     context.Context
	project string
	dir     string

	// checked is the size that was compared with the quota.
	checked, written int64
	// looked is the value of written at the last check of the disk's free space.
	looked int64
}

// roomStep is how many bytes are written between two checks of the disk.
const roomStep = 64 << 20

// open checks the size in the manifest.
func (r *importRoom) open(m *snapshot.Manifest) error {
	if err := r.checkSize(m.Size()); err != nil {
		return err
	}
	return r.look(m.Size())
}

// Take implements snapshot.Room.
func (r *importRoom) Take(bytes int64) error {
	r.written += bytes
	if err := r.checkSize(r.written); err != nil {
		return err
	}
	if r.written-r.looked < roomStep {
		return nil
	}
	r.looked = r.written
	return r.look(0)
}

// checkSize checks what exceeds the size that was checked before.
func (r *importRoom) checkSize(bytes int64) error {
	if bytes <= r.checked {
		return nil
	}
	more := bytes - r.checked
	r.checked = bytes
	return r.s.fitsWith(r.ctx, r.project, r.s.imports.add(r.project, more), more)
}

// release ends the import: it is stored, or has failed.
func (r *importRoom) release() {
	r.s.imports.add(r.project, -r.checked)
	r.checked = 0
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
