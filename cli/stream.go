package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

// stream runs a command with its output on our streams as it appears, and returns its last
// event. When ctx ends, the command is killed.
func (a *app) stream(ctx context.Context, s *session, id string, req bothy.ExecRequest) (bothy.ExecEvent, error) {
	kind := a.inputKind()
	if kind == inputFile {
		if err := a.wholeInput(&req); err != nil {
			kind = inputPipe
		}
	}
	if kind == inputPipe {
		return a.streamPiped(ctx, s, id, req)
	}
	var final bothy.ExecEvent
	err := s.exec.ExecStream(ctx, id, req, a.printEvent(&final))
	return checkFinal(final, err)
}

// printEvent writes output to our streams and keeps the last event.
func (a *app) printEvent(final *bothy.ExecEvent) func(bothy.ExecEvent) error {
	return func(e bothy.ExecEvent) error {
		if e.IsFinal {
			*final = e
		}
		data, err := e.Bytes()
		if err != nil || len(data) == 0 {
			return err
		}
		w := a.stdout
		if e.Stream == "stderr" {
			w = a.stderr
		}
		_, err = w.Write(data)
		return err
	}
}

func checkFinal(final bothy.ExecEvent, err error) (bothy.ExecEvent, error) {
	if err == nil && !final.IsFinal {
		err = errNoEnd
	}
	return final, err
}

// streamPiped runs a command whose input arrives while it runs: it is started in the background,
// fed, and followed to its end.
func (a *app) streamPiped(ctx context.Context, s *session, id string, req bothy.ExecRequest) (bothy.ExecEvent, error) {
	req.Background = true
	started, err := s.exec.Exec(ctx, id, req)
	if err != nil {
		return bothy.ExecEvent{}, err
	}
	follow, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := feed(ctx, s.exec, id, started.PID, a.stdin); err != nil {
			cancel(err)
		}
	}()
	var final bothy.ExecEvent
	err = s.exec.Output(follow, id, started.PID, 0, a.printEvent(&final))
	if !final.IsFinal && !req.KeepRunning {
		kill(s.exec, id, started.PID)
	}
	if cause := context.Cause(follow); err != nil && ctx.Err() == nil && cause != nil {
		err = cause
	}
	return checkFinal(final, err)
}

// feed copies r to the input of a process, which may well end before r does.
func feed(ctx context.Context, exec bothy.ExecService, id string, pid int, r io.Reader) error {
	buf := make([]byte, 1<<20)
	for {
		n, readErr := r.Read(buf)
		eof := readErr != nil
		if n > 0 || eof {
			err := exec.Stdin(ctx, id, pid, buf[:n], eof)
			if ctx.Err() != nil || inputClosed(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("cannot pass standard input on: %w", err)
			}
		}
		if eof {
			return nil
		}
	}
}

// inputClosed reports whether the process has ended or closed its input.
func inputClosed(err error) bool {
	switch bothy.ErrorCode(err) {
	case bothy.CodeProcessNotFound, bothy.CodeConflict:
		return true
	}
	return false
}

// kill ends a process that is no longer followed.
func kill(exec bothy.ExecService, id string, pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = exec.Signal(ctx, id, pid, int(syscall.SIGKILL))
}

type inputKind int

const (
	inputNone inputKind = iota
	inputFile
	inputPipe
)

// inputKind determines what standard input is. A terminal is not passed on: sh does that.
func (a *app) inputKind() inputKind {
	info, err := a.stdin.Stat()
	switch {
	case err != nil || info.Mode()&os.ModeCharDevice != 0:
		return inputNone
	case info.Mode().IsRegular():
		return inputFile
	}
	return inputPipe
}

// maxWholeInput bounds input that is sent with the request.
const maxWholeInput = 1 << 20

var errInputTooLong = errors.New("standard input is too long for --json: it takes 1 MiB")

// wholeInput puts standard input into the request. If it is too long, this fails, and leaves the
// input untouched if that is a file.
func (a *app) wholeInput(req *bothy.ExecRequest) error {
	if a.inputKind() == inputNone {
		return nil
	}
	start, seekErr := a.stdin.Seek(0, io.SeekCurrent)
	b, err := io.ReadAll(io.LimitReader(a.stdin, maxWholeInput+1))
	if err != nil {
		return err
	}
	if len(b) <= maxWholeInput {
		req.Stdin = string(b)
		return nil
	}
	if seekErr == nil {
		_, err = a.stdin.Seek(start, io.SeekStart)
	}
	return errors.Join(errInputTooLong, err)
}
