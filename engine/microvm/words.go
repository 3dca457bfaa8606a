package microvm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// maxWords is how much of a machine's output is kept, in bytes: its tail.
const maxWords = 16 << 10

// words holds what a machine's kernel, its supervisor and QEMU print when something
// goes wrong.
type words struct {
	f       *os.File
	drained chan struct{}

	mu   sync.Mutex
	said []byte
	// heard is closed and replaced when more output arrives.
	heard chan struct{}
}

// listen keeps the tail of what is written to a machine's pipe.
func listen(dir string) *words {
	w := &words{drained: make(chan struct{}), heard: make(chan struct{})}
	f, err := openPipe(dir, wordPipe+pipeOut)
	if err != nil {
		close(w.drained)
		return w
	}
	w.f = f
	go func() {
		defer close(w.drained)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			w.mu.Lock()
			w.said = tail(append(w.said, buf[:n]...), maxWords)
			close(w.heard)
			w.heard = make(chan struct{})
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *words) text() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.said)
}

// until returns when the output satisfies is, and reports whether it does; it also returns when
// done is closed.
func (w *words) until(done <-chan struct{}, is func(said []byte) bool) bool {
	for {
		w.mu.Lock()
		found, heard := is(w.said), w.heard
		w.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-heard:
		case <-done:
			return false
		}
	}
}

// lastRead is how long the last output may take from the pipe to the reader.
const lastRead = 50 * time.Millisecond

// end returns all output when no process is left that could write more.
func (w *words) end() []byte {
	if w.f != nil {
		w.f.SetReadDeadline(time.Now().Add(lastRead))
		<-w.drained
		w.f.Close()
	}
	return w.text()
}

const panicMark = "Kernel panic - not syncing: "

// panicOf returns why a kernel panicked, or "".
func panicOf(said []byte) string {
	_, rest, ok := bytes.Cut(said, []byte(panicMark))
	if !ok {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strings.TrimSpace(string(line))
}

// cause returns why the machine ended. m.mu is held.
func (m *Machine) cause(said []byte, how string) bothy.Exit {
	if m.ending {
		return bothy.Exit{Reason: bothy.EndTerminated, Detail: "the sandbox was terminated"}
	}
	m.e.log.Warn("machine ended by itself", "sandbox", m.ID(), "how", how, "oom_kills", m.group.OOMKills(), "console", string(tail(said, 2000)))
	last := vm.FindFailure(said)
	switch {
	case m.diskFull:
		return bothy.Exit{Reason: bothy.EndDiskFull, Detail: "the host's disk had no room for what the sandbox wrote; free some, or give sandboxes less disk_mb"}
	case last == vm.WordOOM || m.group.OOMKills() > 0:
		return bothy.Exit{Reason: bothy.EndOutOfMemory, Detail: fmt.Sprintf("the sandbox used more than its %d MB of memory so quickly that no single process could be stopped in time; give it more with memory_mb", m.limits.MemoryMB)}
	case strings.HasPrefix(last, vm.WordGuest):
		return bothy.Exit{Reason: bothy.EndExited, Detail: "the sandbox's first process ended: " + strings.TrimPrefix(last, vm.WordGuest)}
	}
	if why := panicOf(said); why != "" {
		return bothy.Exit{Reason: bothy.EndError, Detail: "the sandbox's kernel panicked: " + why}
	}
	if last != "" {
		return bothy.Exit{Reason: bothy.EndError, Detail: "the sandbox's machine failed: " + last}
	}
	return bothy.Exit{Reason: bothy.EndError, Detail: "the sandbox's machine " + how + "; the server's log has its console output"}
}

// watchNews calls fn with a machine's notifications, until ctx ends.
func watchNews(ctx context.Context, dir string, fn func(vm.News)) error {
	f, err := openPipe(dir, newsPipe+pipeOut)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	s := bufio.NewScanner(f)
	for s.Scan() {
		var n vm.News
		// A line that another reader has partly consumed is useless.
		if json.Unmarshal(s.Bytes(), &n) == nil {
			fn(n)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errors.New("a machine's news ended"), s.Err())
}
