package agent

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/procfs"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

type guestService struct{ a *Agent }

func (s *guestService) Adopt(ctx context.Context, req *guestpb.AdoptRequest) (*guestpb.AdoptResponse, error) {
	return s.a.adopt(req)
}

func (s *guestService) KillLargest(ctx context.Context, req *guestpb.KillLargestRequest) (*guestpb.KillLargestResponse, error) {
	limit := req.LimitBytes
	if limit == 0 {
		limit = s.a.identity.get().memoryLimit
	}
	v, ok, err := s.a.commands.KillLargest(limit)
	if err != nil || !ok {
		return &guestpb.KillLargestResponse{}, err
	}
	res := &guestpb.KillLargestResponse{Killed: true, Pid: uint32(v.PID), Name: v.Name, RssBytes: v.HeldBytes}
	if v.Command != nil {
		res.CommandPid = uint32(v.Command.PID())
	}
	return res, nil
}

func (s *guestService) Stats(ctx context.Context, _ *guestpb.StatsRequest) (*guestpb.StatsResponse, error) {
	return s.a.stats(), nil
}

func (a *Agent) stats() *guestpb.StatsResponse {
	res := &guestpb.StatsResponse{
		UptimeSeconds: procfs.Uptime(), Cpus: uint32(runtime.NumCPU()), Commands: uint32(a.commands.Working()),
		Interpreters: uint32(a.commands.Internal()),
	}
	if all, err := procfs.All(); err == nil {
		res.Processes = uint32(len(all))
	}
	if self, err := procfs.Read(os.Getpid()); err == nil {
		res.GuestRssBytes = self.RSSBytes
	}
	if m, err := procfs.ReadMemory(); err == nil {
		res.MemoryTotalBytes, res.MemoryCacheBytes = m.Total, m.Cached
		res.MemoryUsedBytes = m.Total - max(m.Available, m.Free)
	}
	var fs unix.Statfs_t
	if unix.Statfs("/", &fs) == nil {
		res.DiskTotalBytes = int64(fs.Blocks) * fs.Bsize
		res.DiskUsedBytes = int64(fs.Blocks-fs.Bfree) * fs.Bsize
	}
	return res
}

// Freeze makes the snapshot that follows small and complete.
func (s *guestService) Freeze(ctx context.Context, _ *guestpb.FreezeRequest) (*guestpb.FreezeResponse, error) {
	unix.Sync()
	debug.FreeOSMemory()
	return &guestpb.FreezeResponse{}, nil
}

func (s *guestService) Thaw(ctx context.Context, _ *guestpb.ThawRequest) (*guestpb.ThawResponse, error) {
	return &guestpb.ThawResponse{}, nil
}

// getMetrics answers E2B clients.
func (a *Agent) getMetrics(w http.ResponseWriter, r *http.Request) {
	s := a.stats()
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": s.Cpus, "cpu_used_pct": 0,
		"mem_total": s.MemoryTotalBytes, "mem_used": s.MemoryUsedBytes, "mem_cache": s.MemoryCacheBytes,
		"disk_used": s.DiskUsedBytes, "disk_total": s.DiskTotalBytes,
	})
}
