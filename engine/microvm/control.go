package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// The pipes of a machine, in its folder of pipes. QEMU opens them by these name
// suffixes; the machine reads from in and writes to out.
const (
	pipesDir = "m"
	ctlPipe  = "ctl"
	newsPipe = "news"
	wordPipe = "words"
	pipeIn   = ".in"
	pipeOut  = ".out"
)

// openPipe opens a pipe without waiting for its other end.
func openPipe(dir, name string) (*os.File, error) {
	fd, err := unix.Open(filepath.Join(dir, pipesDir, name), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open pipe %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ask sends the supervisor in a machine a request, and writes the data that precedes its reply
// to out. There is one request at a time, across all processes.
func ask(ctx context.Context, dir string, q vm.Request, out io.Writer) (vm.Reply, error) {
	var r vm.Reply
	unlock, err := lockControl(ctx, dir)
	if err != nil {
		return r, err
	}
	defer unlock()
	to, err := openPipe(dir, ctlPipe+pipeIn)
	if err != nil {
		return r, err
	}
	defer to.Close()
	from, err := openPipe(dir, ctlPipe+pipeOut)
	if err != nil {
		return r, err
	}
	defer from.Close()
	defer context.AfterFunc(ctx, func() {
		to.SetDeadline(time.Unix(1, 0))
		from.SetDeadline(time.Unix(1, 0))
	})()
	number := rand.Uint64()
	b, err := vm.EncodeRequest(number, q)
	if err != nil {
		return r, err
	}
	if _, err := to.Write(b); err != nil {
		return r, closeReason(ctx, fmt.Errorf("ask the machine to %s: %w", q.Op, err))
	}
	frames := vm.NewReader(bufio.NewReaderSize(from, 64<<10), number)
	for {
		kind, b, err := frames.Next()
		if err != nil {
			return r, closeReason(ctx, fmt.Errorf("ask the machine to %s: %w", q.Op, err))
		}
		if kind == vm.KindData {
			if out == nil {
				return r, errors.New("the machine sent data that was not asked for")
			}
			if _, err := out.Write(b); err != nil {
				return r, err
			}
			continue
		}
		if err := json.Unmarshal(b, &r); err != nil {
			return r, err
		}
		return r, replyError(q.Op, r)
	}
}

func replyError(op string, r vm.Reply) error {
	switch {
	case r.Error == "":
		return nil
	case r.BadImage:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the sandbox cannot be started from its images: %s", r.Error).
			WithHint("Build the template again: bothy template build NAME --force.")
	}
	return fmt.Errorf("the machine cannot %s: %s", op, r.Error)
}

// lockControl waits until no other request is in progress.
func lockControl(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
