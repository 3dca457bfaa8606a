package procfs

import (
	"net"
	"os"
	"slices"
	"testing"
)

func TestParseStatSurvivesHostileNames(t *testing.T) {
	const rest = " S 7 42 40 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 4096 25 0 0\n"
	p, err := parseStat([]byte("42 (a) R 1 (b)" + rest))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: 42, PPID: 7, PGID: 42, SID: 40, Name: "a) R 1 (b", State: 'S', RSSBytes: 25 * int64(os.Getpagesize()), StartTicks: 99, CPUTicks: 11}
	if p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 4096 25 0 0"))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseStat(b)
		if err == nil && p.State == 0 {
			t.Errorf("parsed %q without a state", b)
		}
	})
}

func TestThisProcessIsListed(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.PID == os.Getpid() {
			if p.StartTicks <= 0 || p.StartTicks > Ticks() {
				t.Errorf("started at %d, and it is %d", p.StartTicks, Ticks())
			}
			if p.PPID != os.Getppid() || p.RSSBytes == 0 || p.Dead() {
				t.Errorf("wrong figures: %+v", p)
			}
			return
		}
	}
	t.Error("this process is not in the table")
}

func TestPortsOfThisProcess(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Log(err) // no IPv6
			continue
		}
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		if got := Ports(os.Getpid(), Listening()); !slices.Contains(got, port) {
			t.Errorf("%s: %d is not among %v", address, port, got)
		}
		l.Close()
		if got := Ports(os.Getpid(), Listening()); slices.Contains(got, port) {
			t.Errorf("%s: %d is still among %v", address, port, got)
		}
	}
}

func TestEnv(t *testing.T) {
	if got, want := Env(os.Getpid(), "PATH"), os.Getenv("PATH"); got != want {
		t.Errorf("PATH is %q, want %q", got, want)
	}
	if got := Env(os.Getpid(), "PAT") + Env(-1, "PATH"); got != "" {
		t.Errorf("got %q for what is not there", got)
	}
}

func TestMemoryAndUptime(t *testing.T) {
	m, err := ReadMemory()
	if err != nil || m.Total <= 0 || m.Available > m.Total {
		t.Errorf("%+v, %v", m, err)
	}
	if Uptime() <= 0 {
		t.Error("no uptime")
	}
}
