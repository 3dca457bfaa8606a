package snapshots

import (
	"testing"

	"github.com/bothy-dev/bothy"
)

// The state of many files in the sandbox's kernel takes several times as much memory while it is written
// and read. The snapshot must succeed nevertheless, with the same limits afterwards.
func TestManyFilesArePausedAndResumed(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{MemoryMB: 256})
	b.sh(`cd /workspace && python3 -c '
import os
for i in range(30_000):
    if i % 1000 == 0:
        os.mkdir(str(i))
    os.mknod(f"{i // 1000 * 1000}/{i}")
'`)
	for _, step := range []func(){func() { b.snapshot("live") }, func() { b.pause(); b.resume(b.id) }} {
		step()
		if got := b.sh("find /workspace -type f | wc -l"); got != "30000" {
			t.Errorf("30000 files became %s", got)
		}
	}
	b.is(bothy.StateRunning)
}
