package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Names of the measures of files.
const (
	FileRead4K = "file_read_4k"
	FileUp     = "file_up"
	FileDown   = "file_down"
)

// ReadFile is a subject: a file of 4 KiB is read.
func ReadFile(t Target, id string) (Subject, error) {
	content := strings.Repeat("0123456789abcdef", 256)
	write := func() error {
		_, err := t.Client.Files.Write(context.Background(), id, "small", strings.NewReader(content), bothy.WriteOptions{})
		return err
	}
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		body, _, err := t.Client.Files.Read(ctx, id, "small", "")
		if err != nil {
			return err
		}
		defer body.Close()
		got, err := io.ReadAll(body)
		record(FileRead4K, Since(begun))
		if err == nil && string(got) != content {
			err = errors.New("the file is not what was written")
		}
		return err
	}}, write()
}

// CopyFile is a subject: size bytes from open are written to a file of the
// sandbox, and read again. It records MB/s.
func CopyFile(t Target, id string, size int64, open func() (io.ReadCloser, error)) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		from, err := open()
		if err != nil {
			return err
		}
		defer from.Close()
		begun := time.Now()
		info, err := t.Client.Files.Write(ctx, id, "big", from, bothy.WriteOptions{})
		if err != nil {
			return err
		}
		record(FileUp, rate(size, begun))
		if info.Size != size {
			return fmt.Errorf("%d bytes were written, not %d", info.Size, size)
		}
		begun = time.Now()
		body, _, err := t.Client.Files.Read(ctx, id, "big", "")
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := io.Copy(io.Discard, body)
		record(FileDown, rate(size, begun))
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes were read, not %d", n, size)
		}
		return err
	}}
}

func rate(size int64, begun time.Time) float64 {
	return float64(size) / 1e6 / time.Since(begun).Seconds()
}

// RunCodeWarm is the name of the measure of code in a running context.
const RunCodeWarm = "run_code_warm"

// RunCode is a subject: 1+1 in a running context.
func RunCode(t Target, id string) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		r, err := t.Client.Code.RunCode(ctx, id, bothy.CodeRequest{Code: "1+1"})
		record(RunCodeWarm, Since(begun))
		if err == nil && (r.Error != nil || len(r.Results) != 1 || r.Results[0]["text/plain"] != "2") {
			err = fmt.Errorf("1+1 is %+v", r)
		}
		return err
	}}
}

// kernelAlone is a program that times 1+1 in a kernel that it starts, each time that it reads a
// line.
const kernelAlone = `
import sys, time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
def once():
    begun = time.perf_counter()
    waiting = client.execute("1+1")
    answer = idle = None
    while not (answer and idle):
        if not idle:
            m = client.get_iopub_msg(timeout=60)
            idle = m["parent_header"].get("msg_id") == waiting and m["content"].get("execution_state") == "idle"
        else:
            answer = client.get_shell_msg(timeout=60)["parent_header"]["msg_id"] == waiting
    return (time.perf_counter() - begun) * 1000
once()
print("ready", flush=True)
for line in sys.stdin:
    print(once(), flush=True)
`

// KernelAlone is a subject: the same in a kernel of the same sandbox, called from inside by
// Jupyter's own client.
func KernelAlone(ctx context.Context, t Target, id string) (Subject, error) {
	started, err := t.Client.Exec.Exec(ctx, id, bothy.ExecRequest{Command: bothy.Command{Args: []string{"python3", "-c", kernelAlone}}, Background: true})
	if err != nil {
		return Subject{}, err
	}
	from, to := io.Pipe()
	go func() {
		to.CloseWithError(t.Client.Exec.Output(ctx, id, started.PID, 0, func(e bothy.ExecEvent) error {
			var err error
			if e.Stream == "stdout" {
				_, err = io.WriteString(to, e.Data)
			}
			return err
		}))
	}()
	lines := bufio.NewReader(from)
	if first, err := lines.ReadString('\n'); first != "ready\n" {
		return Subject{}, fmt.Errorf("the kernel did not start: %q, %v", first, err)
	}
	return Subject{Name: "kernel", Once: func(ctx context.Context, record Record) error {
		if err := t.Client.Exec.Stdin(ctx, id, started.PID, []byte("\n"), false); err != nil {
			return err
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		ms, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		record(RunCodeWarm, ms)
		return err
	}}, nil
}

// Output transfers so many MiB of a command's output, and returns the rate.
func Output(ctx context.Context, t Target, id string, mib int) (float64, error) {
	begun := time.Now()
	var got int64
	line := fmt.Sprintf("yes 'a line of output, as builds and tests print them' | head -c %dM", mib)
	err := t.Client.Exec.ExecStream(ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: line}}, func(e bothy.ExecEvent) error {
		if e.Encoding == "" {
			got += int64(len(e.Data))
		}
		return nil
	})
	if err == nil && got != int64(mib)<<20 {
		err = fmt.Errorf("%d bytes arrived, not %d MiB", got, mib)
	}
	return rate(int64(mib)<<20, begun), err
}
