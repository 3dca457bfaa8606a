package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// killsVariable says how many hosts TestHostsAreKilledAtRandom kills. `make test-cluster` sets it.
const killsVariable = "BOTHY_TEST_KILLS"

func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv(killsVariable)
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q", killsVariable, text)
	}
	return n
}

// Three hosts are killed in turn and started again, while sandboxes are created, used, paused, resumed
// and moved through all of them. No sandbox is ever on two hosts, no paused one is lost, and a request
// that is repeated with its idempotency key gets the same answer.
func TestHostsAreKilledAtRandom(t *testing.T) {
	t.Parallel()
	names := []string{"one", "two", "three"}
	// A host is unavailable too briefly to be given up.
	hosts := newHosts(t, names...)
	n := kills(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	boxes := make([]*box, 6)
	for i := range boxes {
		boxes[i] = hosts[i%3].newBox(t, bothy.SandboxCreate{MemoryMB: 64, AutoResume: i%2 == 0})
		boxes[i].sh("", fmt.Sprintf("echo content %d >/workspace/file", i))
	}
	// pick returns a host to use, which may be down.
	alive := func(i int) *server { return hosts[i%3] }
	for round := range n {
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		var users sync.WaitGroup
		victim := random.IntN(3)
		var keys []string
		var mu sync.Mutex
		answers := map[string]map[string]bool{}
		for i, b := range boxes {
			through, what, to := b.at(alive(victim+1+random.IntN(2))), random.IntN(5), names[random.IntN(3)]
			users.Go(func() {
				// Whatever fails now is because a host is unavailable.
				switch what {
				case 0:
					_, _ = through.s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{})
				case 1:
					_, _ = through.s.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{})
				case 2, 3:
					_, _ = through.s.Hosts.MoveSandbox(ctx, b.id, bothy.SandboxMove{Host: to})
				default:
					_, _ = through.s.Exec.Exec(ctx, b.id, line("", fmt.Sprintf("echo %d >/workspace/last-%d", round, i)))
				}
			})
		}
		for i := range 2 {
			key := fmt.Sprintf("key-%d-%d-%d", seed, round, i)
			keys = append(keys, key)
			through := alive(victim + 1 + i)
			users.Go(func() {
				for ctx.Err() == nil {
					sb, err := through.create(client.WithIdempotencyKey(ctx, key), smallest)
					if err != nil {
						time.Sleep(20 * time.Millisecond)
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					answers[key] = map[string]bool{sb.ID: true}
					return
				}
			})
		}
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
		if err := hosts[victim].Kill(); err != nil {
			t.Fatal(err)
		}
		if err := hosts[victim].Start(); err != nil {
			t.Fatal(err)
		}
		users.Wait()
		for _, key := range keys {
			for _, s := range hosts {
				sb, err := s.create(client.WithIdempotencyKey(ctx, key), smallest)
				if err != nil {
					t.Fatalf("round %d: a completed request failed when it was repeated: %v", round, err)
				}
				answers[key][sb.ID] = true
			}
			if len(answers[key]) != 1 {
				t.Errorf("round %d: the request %s got the answers %v", round, key, answers[key])
			}
			for id := range answers[key] {
				if err := hosts[0].Sandboxes.Terminate(ctx, id); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
		}
		for i, b := range boxes {
			b.settled(t, hosts, fmt.Sprintf("round %d, %s was killed, sandbox %d", round, names[victim], i), fmt.Sprintf("content %d", i))
		}
		cancel()
		if t.Failed() {
			return
		}
	}
	noConflicts(t, hosts)
}

// noConflicts checks that no host has taken its own writes of sandboxes for something else's.
func noConflicts(t *testing.T, hosts []*server) {
	t.Helper()
	for _, s := range hosts {
		for _, line := range s.Log() {
			if strings.Contains(line, "changed by something other than this server") || strings.Contains(line, "another host owns a sandbox that runs here") {
				t.Errorf("a host reports a conflict: %s", line)
			}
		}
	}
}

// settled checks that a sandbox is complete and on exactly one host.
func (b *box) settled(t *testing.T, hosts []*server, what, content string) {
	t.Helper()
	eventually(t, what+": it is running or paused", func() bool {
		sb := b.get()
		if sb.State.Ended() {
			t.Fatalf("%s: it has ended: %+v", what, sb.Ended)
		}
		return sb.State == bothy.StateRunning || sb.State == bothy.StatePaused
	})
	running := b.get().State == bothy.StateRunning
	most := 0
	if running {
		most = 1
	}
	var found string
	defer func() {
		if t.Failed() {
			t.Logf("%s: last found on the hosts: %s (running: %v, now %s)", what, found, running, b.get().State)
		}
	}()
	eventually(t, what+": it is on one host", func() bool {
		on := 0
		found = ""
		for _, s := range hosts {
			if p := s.Processes(b.id); len(p) > 0 {
				found += fmt.Sprint(s.Home, p, " ")
				on++
			}
		}
		return on == most
	})
	for i := range hosts {
		through := hosts[(i+len(what))%len(hosts)]
		var got string
		eventually(t, what+": it can be used", func() bool {
			sb, err := through.Sandboxes.Get(t.Context(), b.id)
			if err == nil && sb.State == bothy.StatePaused {
				_, err = through.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
			}
			// The request that was in progress when the host died may still be running.
			if err != nil && !retriable(err) && bothy.ErrorCode(err) != bothy.CodeConflict {
				t.Fatalf("%s: it cannot be resumed: %v", what, err)
			}
			r, err := b.at(through).exec(line("", "cat /workspace/file"))
			if err == nil {
				got = strings.TrimSpace(r.Stdout)
			}
			return err == nil
		})
		if got != content {
			t.Errorf("%s: its file contains %q", what, got)
		}
	}
}
