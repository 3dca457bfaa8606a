package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// boxOn creates a sandbox on a host.
func (f *farHosts) boxOn(name string, req bothy.SandboxCreate) *box {
	f.Helper()
	return f.hosts[0].boxOn(f.T, name, req)
}

// unanswered checks that a command through a host is refused with a reason and a hint.
func (b *box) unanswered(what string) {
	b.Helper()
	_, err := b.exec(line("", "true"))
	e := bothy.AsError(err)
	if err == nil || e.Code != bothy.CodeStore || e.RetryAfter == 0 || e.Hint == "" {
		b.Errorf("%s: a command ends with %+v", what, err)
	}
}

// again waits until a sandbox can be used. Errors before that must be retriable.
func (b *box) again() {
	b.Helper()
	eventually(b.T, "the sandbox can be used again", func() bool {
		_, err := b.exec(line("", "true"))
		if e := bothy.AsError(err); err != nil && (e.Code != bothy.CodeStore || e.RetryAfter == 0) {
			b.Fatalf("a command after the network is repaired: %v", err)
		}
		return err == nil
	})
	b.usable()
}

func (f *farHosts) allUp() {
	f.Helper()
	for _, h := range must(f.hosts[0].Hosts.Hosts(f.Context())) {
		if h.State != bothy.HostUp {
			f.Errorf("the host %s is %s", h.Name, h.State)
		}
	}
}

// frozenByLease is what a host logs when it freezes its sandboxes because its lease was not renewed. Idle
// sandboxes may already be frozen.
const frozenByLease = "cannot renew this host's lease; its sandboxes are frozen"

// awaitFrozenByLease waits until a host's sandboxes are frozen because its lease was not renewed. On a busy
// computer they may have been frozen before the host is cut off.
func (s *server) awaitFrozenByLease(t *testing.T) {
	t.Helper()
	eventually(t, "its sandboxes are frozen", func() (still bool) {
		for _, l := range s.Log() {
			switch {
			case strings.Contains(l, frozenByLease):
				still = true
			case strings.Contains(l, "this host's lease is renewed"):
				still = false
			}
		}
		return still
	})
}

// Each pair that communicates is cut off: two hosts, a host and the database, a host and the object
// storage. Requests over other paths succeed, those over this one fail with a reason, and everything
// works once the network is repaired.
func TestHostsThroughPartitions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("building the S3 server takes minutes the first time")
	}
	var e *ear
	f := newFarHosts(t, shortLease, func(self string) string {
		e = newEarAt(t, net.ParseIP(self).To4())
		return fmt.Sprintf("network:\n  allow: [%s/32]\n", self)
	}, "one", "two", "three")
	one, two, three := f.hosts[0], f.hosts[1], f.hosts[2]
	a, b, c := f.boxOn("one", smallest), f.boxOn("two", smallest), f.boxOn("three", smallest)
	usable := func() {
		t.Helper()
		for _, s := range f.hosts {
			for _, x := range []*box{a, b, c} {
				x.at(s).again()
			}
		}
		f.allUp()
	}
	usable()

	t.Log("two hosts")
	began := make(chan error, 1)
	go func() {
		_, err := b.at(one).exec(line("", "touch /tmp/began; while [ ! -e /tmp/end ]; do sleep 0.1; done"))
		began <- err
	}()
	b.sh("", "until [ -e /tmp/began ]; do sleep 0.05; done")
	f.cut("one", "two")
	b.at(one).unanswered("through a host that is cut off from the one that has it")
	if err := <-began; bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a command that was running when its host was cut off: %v", err)
	}
	a.at(two).unanswered("the other way round")
	for _, x := range []*box{a, b, c} {
		x.at(three).usable()
	}
	_, err := three.Hosts.MoveSandbox(t.Context(), b.id, bothy.SandboxMove{Host: "one"})
	if bothy.ErrorCode(err) != bothy.CodeStore || !strings.Contains(err.Error(), "the target host one does not answer") {
		t.Errorf("a move between them: %v", err)
	}
	b.at(two).usable()
	for _, s := range f.hosts { // if a host does not answer, another takes the request or it is retried
		var sb *bothy.Sandbox
		eventually(t, "a sandbox is made", func() bool { sb, err = s.create(t.Context(), smallest); return err == nil })
		if err := three.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	}
	f.allUp()
	f.mend("one", "two")
	b.sh("", "touch /tmp/end")
	usable()

	t.Log("a host and the object storage")
	f.cut("one", nodeS3)
	a.write("/workspace/file", "content")
	snapshot, err := two.Snapshots.Pause(t.Context(), a.id, bothy.PauseOptions{})
	if err != nil || snapshot.Durable != bothy.DurableHost {
		t.Fatalf("paused without object storage: %+v, %v", snapshot, err)
	}
	if _, err := three.Snapshots.Resume(t.Context(), a.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	usable()
	f.mend("one", nodeS3)
	eventually(t, "the snapshot arrives in the object storage", func() bool {
		n, err := two.Snapshots.Snapshot(t.Context(), snapshot.ID)
		return err == nil && n.Durable == bothy.DurableStore
	})
	usable()

	t.Log("a host and the database, briefly")
	f.cut("one", nodeDB)
	for _, x := range []*box{b, c} {
		x.at(two).usable()
	}
	one.awaitFrozenByLease(t)
	f.mend("one", nodeDB)
	usable()

	t.Log("all hosts and the database")
	f.cut(nodeDB, "one", "two", "three")
	for _, s := range f.hosts {
		s.awaitFrozenByLease(t)
	}
	f.mend(nodeDB, "one", "two", "three")
	usable()

	t.Log("a host and the database, for a long time")
	talks := f.boxOn("one", bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	e.talk(talks)
	kept, err := two.Snapshots.CreateSnapshot(t.Context(), a.id, bothy.SnapshotCreate{Wait: bothy.DurableStore})
	if err != nil {
		t.Fatal(err)
	}
	a.write("/workspace/file", "later")
	f.cut("one", nodeDB)
	one.awaitFrozenByLease(t)
	eventually(t, "the sandbox that talks is frozen", func() bool { return isFrozen(t, one, talks.id) })
	ends := leaseEnd(t, two, "one")
	if ended := two.awaitEndOf(t, talks.id); ended.Ended.Reason != bothy.EndHostLost {
		t.Errorf("it ended with %+v", ended.Ended)
	}
	lost := two.awaitHostLost(t, a.id)
	if lost.Data["snapshot_id"] != kept.ID {
		t.Errorf("the event of the sandbox with a snapshot: %v", lost.Data)
	}
	// Its host still answers, with an error. A retry finds the new host.
	eventually(t, "the sandbox goes on elsewhere", func() bool {
		_, err := three.Snapshots.Resume(t.Context(), a.id, bothy.ResumeOptions{})
		if e := bothy.AsError(err); err != nil && e.RetryAfter == 0 {
			t.Fatal(err)
		}
		return err == nil
	})
	if got := a.at(three).read("/workspace/file"); got != "content" {
		t.Errorf("it was resumed with %q", got)
	}
	if at, n := e.heard(); at.After(ends) {
		t.Errorf("packet %s left the sandbox %s after the end of its host's lease", n, at.Sub(ends))
	}
	_, last := e.heard()
	f.mend("one", nodeDB)
	if err := one.Ends(); err == nil {
		t.Error("the host that was given up continues")
	}
	if log := strings.Join(one.Log(), "\n"); !strings.Contains(log, "given this one up\" count=") {
		t.Error("the log does not say how many sandboxes it has ended")
	}
	for _, x := range []*box{a, talks} {
		if left := one.Processes(x.id); len(left) > 0 {
			t.Errorf("left of a sandbox that was given up: %v", left)
		}
	}
	if _, now := e.heard(); now != last {
		t.Errorf("the sandbox was heard after it had ended: %s, then %s", last, now)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	usable()
	if got := a.at(one).read("/workspace/file"); got != "content" {
		t.Errorf("its file contains %q", got)
	}
}

// cutsVariable says how often TestHostsAreCutOffAtRandom cuts the network. `make test-cluster` sets it.
const cutsVariable = "BOTHY_TEST_CUTS"

// Each connection is cut for a while, while sandboxes are used, paused, resumed and moved over all of
// them. No sandbox is lost or on two hosts.
func TestHostsAreCutOffAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("building the S3 server takes minutes the first time")
	}
	n := 3
	if text := os.Getenv(cutsVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s is %q", cutsVariable, text)
		}
	}
	names := []string{"one", "two", "three"}
	// No host is cut off for long enough to be given up.
	f := newFarHosts(t, 60, func(string) string { return "" }, names...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	boxes := make([]*box, 6)
	for i := range boxes {
		boxes[i] = f.hosts[i%3].newBox(t, bothy.SandboxCreate{MemoryMB: 64, AutoResume: i%2 == 0})
		boxes[i].sh("", fmt.Sprintf("echo content %d >/workspace/file", i))
	}
	for round := range n {
		host := random.IntN(3)
		other := []string{nodeDB, nodeS3, names[(host+1)%3]}[random.IntN(3)]
		what := fmt.Sprintf("round %d, %s and %s", round, names[host], other)
		var users sync.WaitGroup
		cut := make(chan struct{})
		for i, b := range boxes {
			through, does, to, first := b.at(f.hosts[random.IntN(3)]), random.IntN(5), names[random.IntN(3)], random.IntN(2) == 0
			users.Go(func() {
				if !first {
					<-cut
				}
				// Whatever fails now is because of the network.
				switch does {
				case 0:
					_, _ = through.s.Snapshots.Pause(b.ctx, b.id, bothy.PauseOptions{})
				case 1:
					_, _ = through.s.Snapshots.Resume(b.ctx, b.id, bothy.ResumeOptions{})
				case 2, 3:
					_, _ = through.s.Hosts.MoveSandbox(b.ctx, b.id, bothy.SandboxMove{Host: to})
				default:
					_, _ = through.exec(line("", fmt.Sprintf("echo %d >/workspace/last-%d", round, i)))
				}
			})
		}
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		f.cut(names[host], other)
		close(cut)
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		f.mend(names[host], other)
		users.Wait()
		for i, b := range boxes {
			b.settled(t, f.hosts, fmt.Sprintf("%s, sandbox %d", what, i), fmt.Sprintf("content %d", i))
		}
		if t.Failed() {
			return
		}
	}
	f.allUp()
	noConflicts(t, f.hosts)
}
