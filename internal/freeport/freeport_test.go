package freeport

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const elsewhere = "BOTHY_TEST_FREEPORT"

// TestMain is also another process, which takes ports until its input ends.
func TestMain(m *testing.M) {
	if os.Getenv(elsewhere) == "" {
		os.Exit(m.Run())
	}
	for range 100 {
		address, _, err := Take("127.0.0.1")
		if err != nil {
			address = err.Error()
		}
		os.Stdout.WriteString(address + "\n")
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// An address is given out once, in this process and others, even before anything listens there; and no
// outgoing connection gets one of these ports.
func TestAddressesAreTakenOnce(t *testing.T) {
	seen := map[string]bool{}
	see := func(address string) {
		t.Helper()
		if seen[address] {
			t.Errorf("%s was found twice", address)
		}
		seen[address] = true
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		first, n := room("/proc/sys/net/ipv4/ip_local_port_range")
		if p, _ := strconv.Atoi(port); p < first || p >= first+n {
			t.Errorf("port %s is not of the %d from %d on", port, n, first)
		}
	}
	for range 4 {
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), elsewhere+"=1")
		in, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			in.Close()
			_ = other.Wait()
		}()
		lines := bufio.NewScanner(out)
		for range 100 {
			if !lines.Scan() {
				t.Fatal("the other process has ended:", lines.Err())
			}
			see(lines.Text())
		}
	}
	for range 100 {
		see(ForTest(t))
	}
}

func TestAnAddressIsFreeAgain(t *testing.T) {
	address, taken, err := Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	if l, err := net.Listen("unix", "@bothy-port-"+port); err == nil {
		l.Close()
		t.Fatal("it is not taken")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", "@bothy-port-"+port)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestRoomIsOutsideOfTheKernelsRange(t *testing.T) {
	for _, c := range []struct {
		text     string
		first, n int
	}{
		{"32768\t60999\n", 10000, 22768},
		{"10000 40000", 40001, 25535},
		{"1024 65535", 10000, 55536},
		{"5000 9000", 9001, 56535},
	} {
		file := filepath.Join(t.TempDir(), "range")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if first, n := room(file); first != c.first || n != c.n {
			t.Errorf("%s: %d from %d", strings.TrimSpace(c.text), n, first)
		}
	}
	if first, n := room("/nonexistent"); first != 10000 || n != 22768 {
		t.Errorf("%d from %d", n, first)
	}
}

func TestAHostThatIsNotThisOne(t *testing.T) {
	if address, _, err := Take("192.0.2.1"); err == nil {
		t.Errorf("found %s", address)
	}
}
