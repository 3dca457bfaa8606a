package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// When its caller leaves, a command is killed with all its descendants, including those that
// moved to another session or process group.
func TestLeavingExecKillsTheWholeTree(t *testing.T) {
	g := adopted(t)
	dir := t.TempDir()
	beats := func(name string) string { return filepath.Join(dir, name) }
	beat := func(name string) string { return "while :; do echo x >> " + beats(name) + "; sleep 0.02; done" }
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := g.Exec(ctx, line("("+beat("child")+") & setsid bash -c '"+beat("away")+"' & "+beat("self")))
		done <- err
	}()
	size := func(name string) int64 {
		info, err := os.Stat(beats(name))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	names := []string{"child", "away", "self"}
	for _, name := range names {
		eventually(t, name+" runs", func() bool { return size(name) > 0 })
	}
	leave()
	err := <-done
	wantCode(t, err, bothy.CodeCommandCancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not say that the caller left", err)
	}
	eventually(t, "nothing runs", func() bool {
		list, err := g.Processes(t.Context())
		return err == nil && len(list) == 1 && !list[0].Running
	})
	// A process that was killed writes no more.
	before := map[string]int64{}
	for _, name := range names {
		before[name] = size(name)
	}
	if _, err := g.Exec(t.Context(), line("sleep 0.2")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if size(name) != before[name] {
			t.Errorf("%s still runs", name)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// A caller may leave before the guest has said which process it is.
func TestLeavingBeforeTheStartIsKnown(t *testing.T) {
	var killed atomic.Int64
	asked, left := make(chan struct{}), make(chan struct{})
	c := takenOver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case processpb.ProcessStartProcedure:
			close(asked)
			<-left
			b, _ := proto.Marshal(&processpb.StartResponse{Event: &processpb.ProcessEvent{
				Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 4321}},
			}})
			io.WriteString(w, frame(0, len(b), string(b)))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case processpb.ProcessSendSignalProcedure:
			var req processpb.SendSignalRequest
			if err := proto.Unmarshal(body, &req); err == nil && req.Number == 9 {
				killed.Store(int64(req.Process.GetPid()))
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Exec(ctx, line("sleep 300"))
		done <- err
	}()
	<-asked
	leave()
	close(left)
	wantCode(t, <-done, bothy.CodeCommandCancelled)
	if killed.Load() != 4321 {
		t.Errorf("killed process %d, not 4321", killed.Load())
	}
}

func TestNothingIsStartedForACallerWhoHasLeft(t *testing.T) {
	g := adopted(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := g.Exec(ctx, line("sleep 300"))
	wantCode(t, err, bothy.CodeTimeout)
	if bothy.AsError(err).Hint == "" {
		t.Errorf("%v has no hint", err)
	}
	if list, err := g.Processes(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A terminal survives its client, and a client that joins it gets the output it missed.
func TestTerminalIsJoined(t *testing.T) {
	g := adopted(t)
	first, err := g.Terminal(t.Context(), bothy.TerminalRequest{Command: bothy.Command{Line: "echo one; read line; echo got $line; sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := first.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.(bothy.Detacher).Detach(); err != nil {
		t.Fatal(err)
	}
	again, err := g.Terminal(t.Context(), bothy.TerminalRequest{Process: first.PID(), From: int64(n)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Write([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	for !bytes.Contains(seen, []byte("got two")) {
		n, err := again.Read(buf)
		if err != nil {
			t.Fatalf("%q: %v", seen, err)
		}
		seen = append(seen, buf[:n]...)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	plain := args("sleep", "300")
	plain.Background = true
	res, err := g.Exec(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Terminal(t.Context(), bothy.TerminalRequest{Process: res.PID})
	wantCode(t, err, bothy.CodeConflict)
}
