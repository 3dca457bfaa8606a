package tuning

// The names of those that the server or package entry checks. Patches check theirs in the
// library.
const (
	Confiner    = "confiner"
	Processor   = "processor"
	Descriptors = "descriptors"
	WriteAhead  = "write-ahead"
	GuestEnv    = "guest-env"
	GoDebug     = "go-debug"
	Garbage     = "garbage"
	Processors  = "processors"
	LatePatch   = "late-patch"
	EarlyClose  = "early-close"
	Announce    = "announce"
	Batch       = "batch"
	Splice      = "splice"
	Naps        = "naps"
	Clock       = "clock"
	Filter      = "filter"
	TracePoints = "trace-points"
	Trim        = "trim"
	Warm        = "warm"
)

// All lists every optimisation. Prespawned sentries have a setting of the server (pool.spares).
var All = []Optimisation{
	{Name: Confiner, Where: "launcher", Does: "A program of one page makes a sentry's namespaces and gives up its capabilities before it starts."},
	{Name: Processor, Where: "patches/1016-processor-features-told.patch", Does: "A sentry is told what the processor can do, instead of asking it 300 times."},
	{Name: Descriptors, Where: "spawn.go", Does: "A sentry inherits a table of descriptors that is large enough for all it opens."},
	{Name: WriteAhead, Where: "image.go", Does: "The file of a large sandbox's memory is written once before the sandbox is paused for a snapshot."},
	{Name: GuestEnv, Where: "driver/spec.go", Does: "The guest begins with one processor, no collection of garbage and no preemption."},
	{Name: GoDebug, Where: "spawn.go", Does: "A sentry's runtime does not look at cgroups, nor name its pieces of memory."},

	{Name: Garbage, Where: "entry/garbage.go", Does: "Garbage lies while a sandbox starts, and while it is paused for a snapshot."},
	{Name: Processors, Where: "patches/1012-processors-hook.patch", Does: "A sentry has two processors more than its sandbox, for good."},
	{Name: LatePatch, Where: "entry/patch.go", Does: "A system call instruction is rewritten when it is met for the second time, not the first."},
	{Name: EarlyClose, Where: "entry/exit.go", Does: "A process that exits closes its files before it gives its memory back."},
	{Name: Announce, Where: "entry/listen.go", Does: "The sentry tells the server when the guest listens."},
	{Name: Batch, Where: "entry/calls.go", Does: "The guest makes rows of system calls at once."},
	{Name: Splice, Where: "entry/splice.go", Does: "The guest has the kernel carry bytes from one descriptor to another."},
	{Name: Naps, Where: "entry/sleep.go", Does: "The guest's naps last 4 ms at least."},
	{Name: Clock, Where: "patches/1018-clocks-calibrated-early.patch", Does: "Programs read the time without a system call 5 ms after the start, not a second."},
	{Name: Filter, Where: "patches/0015-sentry-filter-compiled-ahead.patch", Does: "The filter of the sentry's system calls is compiled ahead."},
	{Name: TracePoints, Where: "patches/1017-trace-points-not-described.patch", Does: "Trace points are not described."},
	{Name: Trim, Where: "patches/1019-anonymous-memory-listed.patch", Does: "Memory that was never touched is taken back before it is written to a snapshot."},
	{Name: Warm, Where: "entry/warm.go", Does: "A sentry that waits makes processes, has memory at hand and looks at its types."},

	{Name: "one-packet", Where: "patches/0002-one-packet-received-first.patch", Does: "One packet is received at a time, and more where more come."},
	{Name: "byte-buffer", Where: "patches/0011-checkpoint-read-from-the-buffer.patch", Does: "The bytes of a checkpoint go straight to and from its buffer."},
	{Name: "byte-arrays", Where: "patches/0012-checkpoint-byte-arrays-whole.patch", Does: "Arrays of bytes are written to a checkpoint whole."},
	{Name: "read-ahead", Where: "patches/0013-checkpoint-read-ahead.patch", Does: "One thread reads the objects of a checkpoint while another makes them."},
	{Name: "late-types", Where: "patches/0014-checkpoint-types-registered-on-demand.patch", Does: "The types of checkpoints are registered on demand."},
	{Name: "page-readers", Where: "patches/1001-checkpoint-pages-readers-per-processor.patch", Does: "A checkpoint's memory is read by as many threads as there are processors, not 128."},
	{Name: "statistics", Where: "patches/1002-checkpoint-statistics-off.patch", Does: "The time that objects of a checkpoint take is not measured."},
	{Name: "stub-threads", Where: "patches/1020-stub-threads-for-the-sandbox.patch", Does: "A program has as many threads on the host as its sandbox has processors, not two more."},
	{Name: "call-counters", Where: "patches/1005-unimplemented-syscalls-not-counted.patch", Does: "System calls that there are not are not counted."},
}
