package e2e

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// waitsForLeases skips a test that waits until hosts are given up, unless long tests are wanted.
func waitsForLeases(t *testing.T) {
	t.Helper()
	if os.Getenv("BOTHY_TEST_LONG") == "" {
		t.Skip("waits for leases; BOTHY_TEST_LONG=1 runs it")
	}
}

// A create whose host dies before it answers is repeated with its idempotency key on another host, which has room:
// while the sandbox may come back there is no second one, and once it has ended with its host there is a new one.
func TestACreateIsRepeatedAfterItsHostWasGivenUp(t *testing.T) {
	waitsForLeases(t)
	t.Parallel()
	for _, step := range []string{"lifecycle.started", "lifecycle.adopted", "lifecycle.move.running"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			hosts := newShortLeaseHosts(t, "one", "two")
			one, two := hosts[0], hosts[1]
			if err := one.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := one.Start(step + "=kill"); err != nil {
				t.Fatal(err)
			}
			as := func(state bothy.HostState) {
				if _, err := two.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: state}); err != nil {
					t.Fatal(err)
				}
			}
			as(bothy.HostCordoned)
			ctx := client.WithIdempotencyKey(t.Context(), "once")
			made := bothy.SandboxCreate{MemoryMB: 64, DiskMB: 64, Name: "once"}
			if sb, err := two.create(ctx, made); err == nil {
				t.Fatalf("%s was made, and its host is alive", sb.ID)
			}
			if err := one.Dies(); err != nil {
				t.Fatal(err)
			}
			as(bothy.HostUp)
			named := func() (ids []string) {
				t.Helper()
				all, err := two.AllSandboxes(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, sb := range all {
					if sb.Name == made.Name {
						ids = append(ids, sb.ID)
					}
				}
				return ids
			}
			if sb, err := two.create(ctx, made); err == nil {
				t.Errorf("%s was made while the first one's host may come back", sb.ID)
			}
			first := named()
			if len(first) != 1 {
				t.Fatalf("there are the sandboxes %v", first)
			}
			two.awaitEndOf(t, first[0])
			again, err := two.create(ctx, made)
			if err != nil || again.State != bothy.StateRunning {
				t.Fatalf("%+v %v", again, err)
			}
			if sb, err := two.create(ctx, made); err != nil || sb.ID != again.ID || len(named()) != 2 {
				t.Errorf("repeated once more, it is %+v, %v, of %v", sb, err, named())
			}
		})
	}
}

// The host of a sandbox stands still, and another one resumes it. Requests to delete the sandbox that wait for the
// first host in the meantime succeed only if the sandbox is gone.
func TestADeleteAtAHostThatWasGivenUp(t *testing.T) {
	waitsForLeases(t)
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two", "three")
	one, two, three := hosts[0], hosts[1], hosts[2]
	b := two.boxOn(t, "two", smallest)
	on := bothy.HostLossResume
	if _, err := two.Sandboxes.Update(t.Context(), b.id, bothy.SandboxUpdate{OnHostLoss: &on}); err != nil {
		t.Fatal(err)
	}
	b.write("/workspace/file", "content")
	if _, err := two.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Wait: bothy.DurableStore}); err != nil {
		t.Fatal(err)
	}
	if err := two.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	deleted := make(chan error, 2)
	for _, through := range []*server{two, three} {
		go func() { deleted <- through.Sandboxes.Terminate(ctx, b.id) }()
	}
	eventually(t, "another host resumes the sandbox, or ends it", func() bool {
		sb, err := one.Sandboxes.Get(ctx, b.id)
		return err == nil && (sb.Ended != nil || sb.State == bothy.StateRunning && sb.HostLoss != nil)
	})
	if err := two.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	gone := false
	for range 2 {
		err := <-deleted
		t.Logf("a request to delete it got %v", err)
		gone = gone || err == nil
	}
	if err := two.Ends(); err == nil {
		t.Error("the host that was given up continues")
	}
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	sb, err := one.Sandboxes.Get(t.Context(), b.id)
	if err != nil {
		t.Fatal(err)
	}
	if running := sb.State == bothy.StateRunning; running == gone {
		t.Fatalf("the sandbox is %s, and a request to delete it succeeded: %v", sb.State, gone)
	}
	if !gone {
		if got := b.at(three).read("/workspace/file"); got != "content" {
			t.Errorf("the file contains %q", got)
		}
		if err := three.Sandboxes.Terminate(t.Context(), b.id); err != nil {
			t.Error(err)
		}
	}
}
