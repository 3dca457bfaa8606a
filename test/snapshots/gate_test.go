package snapshots

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// watchCode continuously records the sandbox's identity and random bytes. Every line has the time at
// which it was begun.
const watchCode = `
import os, socket, time
log = open("/tmp/watch.log", "w", buffering=1)
while True:
    before = time.time()
    with open("/etc/machine-id") as f:
        machine = f.read().strip()
    log.write(f"{before:.6f} {socket.gethostname()} {machine} {os.urandom(8).hex()}\n")
`

// sighting is one line of its output.
type sighting struct {
	at                      float64
	hostname, machine, rand string
}

func (b *box) sightings(after float64) []sighting {
	b.Helper()
	var all []sighting
	for line := range strings.Lines(b.sh(fmt.Sprintf("awk '$1 > %f && NF == 4' /tmp/watch.log | head -20000", after))) {
		f := strings.Fields(line)
		at, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			b.Fatalf("the watch prints %q", line)
		}
		all = append(all, sighting{at, f[1], f[2], f[3]})
	}
	return all
}

// TestCopiesNeverSeeTheOriginalsIdentity takes a snapshot of a program that continuously reads the
// sandbox's identity. In a copy it must read the copy's identity from the first time on.
func TestCopiesNeverSeeTheOriginalsIdentity(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	ctx, cancel := within(t)
	defer cancel()
	if _, err := b.s.Files.Write(ctx, b.id, "/tmp/watch.py", strings.NewReader(watchCode), bothy.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.spawn("exec python3 /tmp/watch.py")
	eventually(t, "watch", func() bool { return len(b.sightings(0)) > 10 })
	old := b.sightings(0)[0]
	n := b.snapshot("")
	// The sandbox's clock is the host's.
	taken := float64(time.Now().UnixMicro()) / 1e6
	b.sh("pkill -f watch.py")

	rands := map[string]string{}
	for range 2 {
		c := shared.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID})
		var seen []sighting
		eventually(t, "watch on", func() bool { seen = c.sightings(taken); return len(seen) > 10 })
		c.sh("pkill -f watch.py")
		for i, s := range c.sightings(taken) {
			if s.hostname == old.hostname || s.machine == old.machine {
				t.Fatalf("look %d of the copy, %.1f ms after the snapshot, saw %s and machine id %s, as in the original",
					i, (s.at-taken)*1e3, s.hostname, s.machine)
			}
			if other := rands[s.rand]; other != "" {
				t.Fatalf("%s and %s were given the same random bytes", other, c.id)
			}
			rands[s.rand] = c.id
		}
	}
}
