package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also the process to which TestSignals sends signals. It answers each line.
func TestMain(m *testing.M) {
	if os.Getenv("BOTHY_TEST_SURVIVOR") == "" {
		os.Exit(m.Run())
	}
	if err := surviveSignals(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		var line string
		if _, err := fmt.Scanln(&line); err != nil {
			os.Exit(0)
		}
		answer := line
		switch line {
		case "fault":
			answer = fault()
		case "child":
			answer = ignoredByChild()
		}
		fmt.Println(answer)
	}
}

// fault reads unmapped memory, and returns the runtime's error.
func fault() (answer string) {
	defer func() { answer = strings.ReplaceAll(fmt.Sprint(recover()), " ", "_") }()
	var nothing *[2]int
	return fmt.Sprint(nothing[1])
}

// ignoredByChild returns the signals that a child of this process ignores, without those above
// 31 that the test's own parent ignores.
func ignoredByChild() string {
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	var mask uint64
	if _, serr := fmt.Sscanf(string(out), "SigIgn:%x", &mask); serr != nil {
		return fmt.Sprint(err, serr)
	}
	return fmt.Sprintf("%x", mask&(1<<31-1))
}

func TestSignals(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BOTHY_TEST_SURVIVOR=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ask := func(line, want string) {
		t.Helper()
		var got string
		fmt.Fprintln(in, line)
		if _, err := fmt.Fscanln(out, &got); err != nil || got != want {
			t.Fatalf("after %s the answer is %q, %v, want %q", line, got, err, want)
		}
	}
	ask("begin", "begin")
	for s := syscall.Signal(1); s < 32; s++ {
		if s == syscall.SIGKILL || s == syscall.SIGSTOP {
			continue
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		ask(unix.SignalName(s), unix.SignalName(s))
	}
	ask("fault", "runtime_error:_invalid_memory_address_or_nil_pointer_dereference")
	ask("child", "0")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
