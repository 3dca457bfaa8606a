package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
)

// clients is how many of them go through the life of a sandbox at once.
const clients = 30

// Many clients at once each create a sandbox, run commands, write and read files, pause and resume it, fork
// it, and terminate both. These tests are for servers that are built with the race detector.
func TestClientsOfOneHost(t *testing.T) {
	t.Parallel()
	manyClients(t, ownServer(t))
}

func TestClientsOfThreeHosts(t *testing.T) {
	t.Parallel()
	manyClients(t, newHosts(t, "one", "two", "three")...)
}

func manyClients(t *testing.T, hosts ...*server) {
	var all sync.WaitGroup
	for i := range clients {
		at := func(n int) *server { return hosts[(i+n)%len(hosts)] }
		all.Go(func() {
			if err := oneClient(t, fmt.Sprintf("client-%d", i), at); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// oneClient uses another host for each step.
func oneClient(t *testing.T, name string, at func(n int) *server) error {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	sb, err := at(0).create(ctx, bothy.SandboxCreate{Name: name, MemoryMB: 64, DiskMB: 64})
	if err != nil {
		return err
	}
	says := func(s *server, id, command, want string) error {
		r, err := s.Exec.Exec(ctx, id, line("", command))
		if err == nil && strings.TrimSpace(r.Stdout) != want {
			err = fmt.Errorf("%s printed %q and %q, not %q", command, r.Stdout, r.Stderr, want)
		}
		return err
	}
	if err := says(at(1), sb.ID, "echo here", "here"); err != nil {
		return err
	}
	if _, err := at(2).Files.Write(ctx, sb.ID, "/workspace/name", strings.NewReader(name), bothy.WriteOptions{}); err != nil {
		return err
	}
	if _, err := at(1).Snapshots.Pause(ctx, sb.ID, bothy.PauseOptions{}); err != nil {
		return err
	}
	if _, err := at(2).Snapshots.Resume(ctx, sb.ID, bothy.ResumeOptions{}); err != nil {
		return err
	}
	copies, err := at(1).Snapshots.Fork(ctx, sb.ID, bothy.ForkRequest{Count: 1})
	if err != nil {
		return err
	}
	for n, id := range []string{sb.ID, copies[0].ID} {
		if err := says(at(n), id, "cat /workspace/name", name); err != nil {
			return err
		}
		if err := at(n+1).Sandboxes.Terminate(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
