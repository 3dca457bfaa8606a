package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) storetest.Opener {
		path := filepath.Join(t.TempDir(), "with space & 100%?.db")
		return func() store.Store { return open(t, path, sqlite.WithNow(now)) }
	})
}

func open(t testing.TB, path string, opts ...sqlite.Option) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	defer s.Close()
	if err := s.PutToken(t.Context(), &store.Token{Token: bothy.Token{ID: "t"}}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 2 {
		t.Fatalf("expected the database and its log: %v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "no/such/folder.db")); err == nil {
		t.Error("opened a database in a folder that is not there")
	}
	path := filepath.Join(t.TempDir(), "b.db")
	if err := os.WriteFile(path, []byte("this is a letter, not a database; it is long enough to tell"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path); err == nil {
		t.Error("opened something that is no database")
	}
}

// TestKilledWriter has a process write until it is killed in the middle, and
// looks for everything that it was told is stored.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.db")
	if at := os.Getenv("BOTHY_TEST_WRITE_TO"); at != "" {
		writeForever(t, at)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriter$")
	cmd.Env = append(os.Environ(), "BOTHY_TEST_WRITE_TO="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var stored []string
	lines := bufio.NewScanner(out)
	for len(stored) < 50 && lines.Scan() {
		stored = append(stored, lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		stored = append(stored, lines.Text())
	}
	_ = cmd.Wait()
	if len(stored) < 50 {
		t.Fatalf("the writer stopped after %d: %v", len(stored), stored)
	}
	s := open(t, path)
	defer s.Close()
	for _, id := range stored {
		if _, err := s.Sandbox(t.Context(), id); err != nil {
			t.Errorf("lost: %v", err)
		}
	}
}

func writeForever(t *testing.T, path string) {
	s := open(t, path)
	for i := 0; ; i++ {
		b := &store.Sandbox{Sandbox: bothy.Sandbox{ID: fmt.Sprint("s", i), State: bothy.StateRunning, CreatedAt: time.Now()}}
		if err := s.PutSandbox(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		fmt.Println(b.ID)
	}
}

func BenchmarkPutRunning(b *testing.B) { benchmarkPut(b, bothy.StateRunning) }
func BenchmarkPutPaused(b *testing.B)  { benchmarkPut(b, bothy.StatePaused) }

func benchmarkPut(b *testing.B, state bothy.State) {
	s := open(b, filepath.Join(b.TempDir(), "b.db"))
	defer s.Close()
	x := &store.Sandbox{
		Sandbox: bothy.Sandbox{
			State: state, Template: "python-3.12", Engine: "gvisor", CPU: 1, CreatedAt: time.Now(), ProjectID: "default",
			Metadata: map[string]string{"team": "red"},
		},
		EngineState: make([]byte, 512),
	}
	versions := map[string]int64{}
	for i := 0; b.Loop(); i++ {
		versions[x.ID] = x.Version
		x.ID = fmt.Sprintf("sbx-%d", i%1000)
		x.Version = versions[x.ID]
		x.IdleSeconds = i // each write changes something
		if err := s.PutSandbox(b.Context(), x); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "b.db"))
	defer s.Close()
	if err := s.PutSandbox(b.Context(), &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a"}, EngineState: make([]byte, 512)}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Sandbox(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAddEvent(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "b.db"))
	defer s.Close()
	for b.Loop() {
		if err := s.AddEvent(b.Context(), &bothy.Event{Type: "x", ProjectID: "p", Time: time.Now()}); err != nil {
			b.Fatal(err)
		}
	}
}
