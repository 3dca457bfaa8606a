package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// smallDisk gives a server a small disk for its state.
func (s *server) smallDisk(t *testing.T) {
	t.Helper()
	image := filepath.Join(s.Dir, "disk")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(600 << 20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.MkdirAll(s.Home, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, s.Home}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if s.Running() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Unmount(s.Home, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill fills the server's disk until free is called.
func (s *server) fill(t *testing.T) (free func()) {
	t.Helper()
	var files []string
	for size := int64(64 << 20); size >= 1<<10; size /= 2 {
		for {
			path := filepath.Join(s.Home, fmt.Sprintf("fill-%d", len(files)))
			files = append(files, path)
			f, err := os.Create(path)
			if err != nil {
				break // not even a file
			}
			err = unix.Fallocate(int(f.Fd()), 0, 0, size)
			f.Close()
			if err != nil {
				break
			}
		}
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.Home, &disk); err != nil || disk.Bavail > 4 {
		t.Fatalf("the disk is not full: %d blocks are left, %v", disk.Bavail, err)
	}
	return func() {
		for _, f := range files {
			os.Remove(f)
		}
	}
}

// healthz returns the server's health report.
func (s *server) healthz(t *testing.T) string {
	t.Helper()
	_, _, text := s.ask(t, "GET", "/healthz", "")
	return text
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	if bothy.ErrorCode(err) != bothy.CodeDiskFull || bothy.AsError(err).Hint == "" {
		t.Errorf("%s on a full disk: %v", what, err)
	}
}

// TestAFullDisk fills a server's disk: changes are reported in errors and events, and are stored once
// there is room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.NoPool = true
	s.smallDisk(t)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	start := func(seconds int) *box {
		sb, err := s.create(ctx, bothy.SandboxCreate{TimeoutSeconds: &seconds})
		if err != nil {
			t.Fatal(err)
		}
		return &box{t, s, ctx, sb.ID}
	}
	lives, dies, deleted, overdue := start(3600), start(3600), start(3600), start(20)
	dies.sh("", "true") // idle sandboxes are frozen, and a frozen process does not die
	key, err := s.Tokens.CreateToken(ctx, bothy.TokenCreate{})
	if err != nil {
		t.Fatal(err)
	}
	free := s.fill(t)

	if err := s.Tokens.DeleteToken(ctx, key.ID); err != nil {
		t.Errorf("revoking a key on a full disk: %v", err)
	}
	if status, _, _ := s.ask(t, "GET", "/v1/limits", "", bearer(key.Key)); status != 401 {
		t.Errorf("the revoked key gets %d", status)
	}
	_, err = s.Snapshots.Pause(ctx, lives.id, bothy.PauseOptions{})
	wantFull(t, "a pause", err)
	begun := time.Now()
	_, err = s.create(ctx, bothy.SandboxCreate{})
	wantFull(t, "a create", err)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("refusing to create a sandbox took %s", took)
	}
	name := "another"
	_, err = s.Sandboxes.Update(ctx, lives.id, bothy.SandboxUpdate{Name: &name})
	wantFull(t, "a change", err)
	lives.sh("", "true")
	if err := s.Sandboxes.Terminate(ctx, deleted.id); err != nil {
		t.Errorf("a delete on a full disk: %v", err)
	}
	for _, pid := range s.sentries(t, dies.id) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string) {
		t.Helper()
		for b, state := range map[*box]bothy.State{lives: bothy.StateRunning, dies: bothy.StateFailed, deleted: bothy.StateStopped, overdue: bothy.StateStopped} {
			for deadline := time.Now().Add(hangs); b.get().State != state; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s a sandbox is %s, and not %s", when, b.get().State, state)
				}
			}
		}
	}
	want("on the full disk")
	if text := s.healthz(t); !strings.Contains(text, "disk under the state is full") {
		t.Errorf("the health report is: %s", text)
	}

	// The server is killed, and the space that this freed is used up.
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	freeMore := s.fill(t)
	if err := s.Start(); err != nil {
		t.Fatalf("on the full disk: %v", err)
	}
	want("after a start on the full disk")
	lives.sh("", "true")
	free()
	freeMore()
	for deadline := time.Now().Add(hangs); !strings.Contains(s.healthz(t), `"status":"ok"`); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("with room again the health report is: %s", s.healthz(t))
		}
	}
	if _, err := s.Snapshots.Pause(ctx, lives.id, bothy.PauseOptions{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got := overdue.get(); got.State != bothy.StateStopped {
		t.Errorf("the overdue sandbox is %s", got.State)
	}
	if err := s.Sandboxes.Terminate(ctx, lives.id); err != nil {
		t.Error(err)
	}
}

// sentries returns the processes whose command line names a sandbox's machine.
func (s *server) sentries(t *testing.T, id string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(b), "runsc-sandbox") && strings.Contains(string(b), filepath.Join(s.Home, "machines", id)) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) == 0 {
		t.Fatalf("no sentry of %s", id)
	}
	return pids
}
