package proc

import (
	"bytes"
	gocontext "context"
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/state"
)

// fileMax is the content of /proc/sys/fs/file-max.
const fileMax = "1048576\n"

// fileNrData implements vfs.DynamicBytesSource for /proc/sys/fs/file-nr. A file that several
// descriptors refer to counts as several.
type fileNrData struct {
	kernfs.DynamicBytesFile

	k *kernel.Kernel
}

// Generate implements vfs.DynamicBytesSource.Generate.
func (d *fileNrData) Generate(ctx context.Context, buf *bytes.Buffer) error {
	open := 0
	for _, tg := range d.k.TaskSet().Root.ThreadGroups() {
		t := tg.Leader()
		if t == nil {
			continue
		}
		t.WithMuLocked(func(t *kernel.Task) {
			if table := t.FDTable(); table != nil {
				open += len(table.GetFDs(ctx))
			}
		})
	}
	fmt.Fprintf(buf, "%d\t0\t%s", open, fileMax)
	return nil
}

func (*fileNrData) StateTypeName() string { return "pkg/sentry/fsimpl/proc.fileNrData" }
func (*fileNrData) StateFields() []string { return []string{"DynamicBytesFile", "k"} }

func (d *fileNrData) StateSave(s state.Sink) {
	s.Save(0, &d.DynamicBytesFile)
	s.Save(1, &d.k)
}

func (d *fileNrData) StateLoad(_ gocontext.Context, s state.Source) {
	s.Load(0, &d.DynamicBytesFile)
	s.Load(1, &d.k)
}

func init() { state.Register((*fileNrData)(nil)) }
