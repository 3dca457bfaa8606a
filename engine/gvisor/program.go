package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
)

// A program is a sentry's binary, and how it is driven.
type program struct {
	path    string
	library library.Library
	// other is set for a sentry of another build than this server's, whose own binary drives it.
	other bool
}

// sentryOf returns the program of an earlier build, or, for nil, of this engine's own.
func (e *Engine) sentryOf(kept *builds.Held) (program, error) {
	if kept == nil {
		return program{path: e.sentry, library: e.library}, nil
	}
	path := kept.Path(roleSentry)
	gvisor, err := library.Of(path)
	return program{path: path, library: gvisor, other: true}, err
}

// prepareTime is how long a driver may take to say how its sentry is started.
const prepareTime = 30 * time.Second

// prepare returns how to start the sentry.
func (p program) prepare(l driver.Launch) (how driver.Prepared, err error) {
	if !p.other {
		return driver.Prepare(l)
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTime)
	defer cancel()
	out, err := p.run(ctx, driver.Request{Launch: &l}, nil)
	if err == nil {
		err = json.Unmarshal(out, &how)
	}
	if err == nil && (how.Boot < 1 || how.Boot > len(how.Args)) {
		err = errors.New("the driver of an earlier build sent an unreadable answer")
	}
	return how, err
}

// do has a sentry execute an operation, until ctx ends.
func (p program) do(ctx context.Context, socket string, op driver.Op, files []*os.File) error {
	if p.other {
		_, err := p.run(ctx, driver.Request{Socket: socket, Op: &op, Files: len(files)}, files)
		return err
	}
	conn, err := driver.Connect(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Socket.Shutdown() })()
	return driver.Do(conn, op, files)
}

// run calls the driver of another build.
func (p program) run(ctx context.Context, q driver.Request, files []*os.File) ([]byte, error) {
	in, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, p.path, driver.Arg)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin, cmd.ExtraFiles = bytes.NewReader(in), files
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		words := strings.TrimSpace(said.String())
		return nil, fmt.Errorf("%s (the driver of gVisor %s: %w)", words[:min(len(words), 600)], p.library.Version, err)
	}
	return out, nil
}
