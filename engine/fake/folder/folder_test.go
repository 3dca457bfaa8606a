package folder_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/engine/fake/folder"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/guest/client"
)

// machine is a machine with a guest that has an identity.
type machine struct {
	bothy.Machine
	*folder.Guest
	gateway bothy.Gateway
}

// end is the end of a machine with its gateway, as lifecycle ends it.
func (m machine) end(t testing.TB) {
	t.Helper()
	if err := errors.Join(m.Destroy(context.Background()), m.gateway.Close()); err != nil {
		t.Error(err)
	}
}

// boot makes a machine by what a start or a restore of engine returns.
func boot(t testing.TB, host *fake.Host, m bothy.Machine, err error) machine {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := m.NetDevice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	g, err := gateway.New(dev, gateway.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(func(ctx context.Context) (net.Conn, error) { return g.Dial(ctx, bothy.GuestPort) }, "")
	guest := &folder.Guest{Host: host, Guest: client.Guest{Client: c, Log: quiet}}
	t.Cleanup(guest.CloseIdle)
	if err := guest.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := guest.Adopt(t.Context(), bothy.Identity{SandboxID: m.ID(), Key: "key", Hostname: "box"}); err != nil {
		t.Fatal(err)
	}
	made := machine{m, guest, g}
	t.Cleanup(func() { made.end(t) })
	return made
}

// world is a host with an engine, and what its machines are made of.
func world(t testing.TB) (*fake.Host, bothy.Engine, bothy.MachineSpec) {
	t.Helper()
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	host := &fake.Host{Boot: folder.Boot(dir)}
	return host, fake.New(host, "build-1"), bothy.MachineSpec{ID: "sbx1", RootFS: image, Guest: image}
}

func (m machine) shell(t *testing.T, line string) string {
	t.Helper()
	r, err := m.Exec(t.Context(), bothy.ExecRequest{Command: bothy.Command{Line: line}, Cwd: "/workspace"})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", line, r, err)
	}
	return r.Stdout
}

func TestMachinesRunCommandsInTheirFolders(t *testing.T) {
	host, engine, spec := world(t)
	started, err := engine.Start(t.Context(), spec)
	one := boot(t, host, started, err)
	if _, err := one.Write(t.Context(), "/workspace/file", strings.NewReader("text"), bothy.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := one.shell(t, "cat file; ln -s file link; mkfifo pipe"); got != "text" {
		t.Errorf("the file holds %q", got)
	}
	if i, err := one.Stat(t.Context(), "file", ""); err != nil || i.Path != "/workspace/file" {
		t.Errorf("a relative path: %+v, %v", i, err)
	}
	_, err = one.Stat(t.Context(), "/workspace/none", "")
	if bothy.ErrorCode(err) != bothy.CodeFileNotFound || strings.Contains(err.Error(), spec.RootFS) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := one.Signal(t.Context(), os.Getpid(), 9); bothy.ErrorCode(err) != bothy.CodeProcessNotFound {
		t.Errorf("a process of the host: %v", err)
	}

	memory := t.TempDir()
	if err := one.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: memory}); err != nil {
		t.Fatal(err)
	}
	spec.ID = "sbx2"
	restored, err := engine.Restore(t.Context(), spec, memory)
	two := boot(t, host, restored, err)
	one.shell(t, "echo changed > file")
	if got := two.shell(t, "cat link; ls"); got != "textfile\nlink\n" {
		t.Errorf("the copy has %q", got)
	}
}

func TestCommandsEndWithTheirMachine(t *testing.T) {
	host, engine, spec := world(t)
	started, err := engine.Start(t.Context(), spec)
	m := boot(t, host, started, err)
	done := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		done <- m.ExecStream(t.Context(), bothy.ExecRequest{Command: bothy.Command{Line: "echo ready; sleep 4321"}}, func(e bothy.ExecEvent) error {
			if e.Data != "" {
				close(begun)
			}
			return nil
		})
	}()
	<-begun
	m.end(t)
	if err := <-done; err == nil {
		t.Error("the command ended by itself")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(spec.RootFS), "sbx1-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// BenchmarkCreate is a machine until its guest answers.
func BenchmarkCreate(b *testing.B) {
	host, engine, spec := world(b)
	for b.Loop() {
		started, err := engine.Start(b.Context(), spec)
		boot(b, host, started, err).end(b)
	}
}
