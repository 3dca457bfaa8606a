package proc

import (
	"bytes"
	gocontext "context"
	"fmt"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/state"
)

// monitors are files that programs like vmstat(8) read. This kernel has no swap, no block devices
// and handles no interrupts.
func (fs *filesystem) monitors(ctx context.Context, root *auth.Credentials, k *kernel.Kernel, contents map[string]kernfs.Inode) {
	var cpus strings.Builder
	for i := range k.ApplicationCores() {
		fmt.Fprintf(&cpus, "       %-4s", fmt.Sprintf("CPU%d", i))
	}
	for name, text := range map[string]string{
		"diskstats":  "",
		"interrupts": "    " + cpus.String() + "\n",
		"softirqs":   "             " + cpus.String() + "\n",
		"swaps":      "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
	} {
		contents[name] = fs.newInode(ctx, root, 0444, newStaticFile(text))
	}
	contents["vmstat"] = fs.newInode(ctx, root, 0444, &vmstatData{})
}

// vmstatData implements vfs.DynamicBytesSource for /proc/vmstat.
type vmstatData struct{ dynamicBytesFileSetAttr }

// Generate implements vfs.DynamicBytesSource.Generate.
func (*vmstatData) Generate(ctx context.Context, buf *bytes.Buffer) error {
	mf := kernel.KernelFromContext(ctx).MemoryFile()
	_ = mf.UpdateUsage(nil) // Best effort, as in meminfoData.
	used, total := usage.MemoryAccounting.Copy()
	free := usage.TotalMemory(mf.TotalSize(), total) - total
	dirty, writeback := usage.DirtyMemoryAccounting.Copy()
	for _, v := range []struct {
		name  string
		bytes uint64
	}{
		{"nr_free_pages", free},
		{"nr_anon_pages", used.Anonymous},
		{"nr_mapped", used.Mapped},
		{"nr_file_pages", used.PageCache + used.Mapped + used.Tmpfs},
		{"nr_dirty", dirty},
		{"nr_writeback", writeback},
		{"nr_shmem", used.Tmpfs},
		// There are no block devices, and there is no swap.
		{"pgpgin", 0}, {"pgpgout", 0}, {"pswpin", 0}, {"pswpout", 0},
	} {
		fmt.Fprintf(buf, "%s %d\n", v.name, v.bytes/hostarch.PageSize)
	}
	return nil
}

// sockstatData implements vfs.DynamicBytesSource for /proc/net/sockstat and sockstat6.
type sockstatData struct {
	kernfs.DynamicBytesFile

	kernel *kernel.Kernel
	family int
}

// Generate implements vfs.DynamicBytesSource.Generate.
func (d *sockstatData) Generate(ctx context.Context, buf *bytes.Buffer) error {
	var used int
	inUse := make(map[linux.SockType]int)
	for _, se := range d.kernel.ListSockets() {
		s := se.Sock
		if !s.TryIncRef() {
			continue
		}
		used++
		if family, stype, _ := s.Impl().(socket.Socket).Type(); family == d.family {
			inUse[stype]++
		}
		s.DecRef(ctx)
	}
	tcp, udp, raw := inUse[linux.SOCK_STREAM], inUse[linux.SOCK_DGRAM], inUse[linux.SOCK_RAW]
	if d.family == linux.AF_INET6 {
		fmt.Fprintf(buf, "TCP6: inuse %d\nUDP6: inuse %d\nUDPLITE6: inuse 0\nRAW6: inuse %d\nFRAG6: inuse 0 memory 0\n", tcp, udp, raw)
		return nil
	}
	fmt.Fprintf(buf, "sockets: used %d\nTCP: inuse %d orphan 0 tw 0 alloc %[2]d mem 0\nUDP: inuse %d mem 0\nUDPLITE: inuse 0\nRAW: inuse %d\nFRAG: inuse 0 memory 0\n", used, tcp, udp, raw)
	return nil
}

// netUDP6Data implements vfs.DynamicBytesSource for /proc/net/udp6.
type netUDP6Data struct{ netUDPData }

// Generate implements vfs.DynamicBytesSource.Generate.
func (d *netUDP6Data) Generate(ctx context.Context, buf *bytes.Buffer) error {
	buf.WriteString("  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n")
	return commonGenerateUDP(ctx, buf, d.kernel, linux.AF_INET6)
}

// smapsRollupData implements vfs.DynamicBytesSource for /proc/[pid]/smaps_rollup.
type smapsRollupData struct{ mm *mm.MemoryManager }

// Generate implements vfs.DynamicBytesSource.Generate.
func (d *smapsRollupData) Generate(ctx context.Context, buf *bytes.Buffer) error {
	if d.mm == nil || !d.mm.IncUsers() {
		return nil
	}
	defer d.mm.DecUsers(ctx)
	d.mm.ReadSmapsRollupInto(ctx, buf)
	return nil
}

func (*vmstatData) StateTypeName() string      { return "pkg/sentry/fsimpl/proc.vmstatData" }
func (*vmstatData) StateFields() []string      { return []string{"dynamicBytesFileSetAttr"} }
func (d *vmstatData) StateSave(s state.Sink)   { s.Save(0, &d.dynamicBytesFileSetAttr) }
func (*sockstatData) StateTypeName() string    { return "pkg/sentry/fsimpl/proc.sockstatData" }
func (*netUDP6Data) StateTypeName() string     { return "pkg/sentry/fsimpl/proc.netUDP6Data" }
func (*netUDP6Data) StateFields() []string     { return []string{"netUDPData"} }
func (d *netUDP6Data) StateSave(s state.Sink)  { s.Save(0, &d.netUDPData) }
func (*smapsRollupData) StateTypeName() string { return "pkg/sentry/fsimpl/proc.smapsRollupData" }
func (*smapsRollupData) StateFields() []string { return []string{"mm"} }
func (d *smapsRollupData) StateSave(s state.Sink) {
	s.Save(0, &d.mm)
}

func (*sockstatData) StateFields() []string {
	return []string{"DynamicBytesFile", "kernel", "family"}
}

func (d *sockstatData) StateSave(s state.Sink) {
	s.Save(0, &d.DynamicBytesFile)
	s.Save(1, &d.kernel)
	s.Save(2, &d.family)
}

func (d *vmstatData) StateLoad(_ gocontext.Context, s state.Source) {
	s.Load(0, &d.dynamicBytesFileSetAttr)
}

func (d *sockstatData) StateLoad(_ gocontext.Context, s state.Source) {
	s.Load(0, &d.DynamicBytesFile)
	s.Load(1, &d.kernel)
	s.Load(2, &d.family)
}

func (d *netUDP6Data) StateLoad(_ gocontext.Context, s state.Source)     { s.Load(0, &d.netUDPData) }
func (d *smapsRollupData) StateLoad(_ gocontext.Context, s state.Source) { s.Load(0, &d.mm) }

var _ = []state.SaverLoader{(*vmstatData)(nil), (*sockstatData)(nil), (*netUDP6Data)(nil), (*smapsRollupData)(nil)}

func init() {
	state.Register((*vmstatData)(nil))
	state.Register((*sockstatData)(nil))
	state.Register((*netUDP6Data)(nil))
	state.Register((*smapsRollupData)(nil))
}
