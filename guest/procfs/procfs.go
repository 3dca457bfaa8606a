// Package procfs reads information about processes and memory from /proc. Only the guest's agent
// uses it.
package procfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is one row of the process table.
type Process struct {
	PID, PPID, PGID, SID int
	Name                 string
	State                byte // as in ps: R, S, D, T, Z...
	RSSBytes             int64
	// StartTicks is when it was started, in hundredths of a second since boot.
	StartTicks int64
	// CPUTicks is the processor time that it has used, in hundredths of a second.
	CPUTicks int64
}

// Dead reports whether the process has ended and only waits to be reaped.
func (p Process) Dead() bool { return p.State == 'Z' || p.State == 'X' }

var errFormat = errors.New("unexpected format")

// maxRead limits what is read of one file under /proc.
const maxRead = 64 << 10

// All lists the processes, except those that end meanwhile.
func All() ([]Process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Read returns one process.
func Read(pid int) (Process, error) {
	b, err := read(pid, "stat")
	if err != nil {
		return Process{}, err
	}
	return parseStat(b)
}

// parseStat parses /proc/PID/stat. The name is in parentheses and may itself contain parentheses
// and blanks.
func parseStat(b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Process{}, errFormat
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 || len(f[0]) != 1 {
		return Process{}, errFormat
	}
	var n [8]int64
	for i, s := range [...]string{string(bytes.TrimSpace(b[:open])), f[1], f[2], f[3], f[21], f[19], f[11], f[12]} {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return Process{}, errFormat
		}
		n[i] = v
	}
	return Process{
		PID: int(n[0]), PPID: int(n[1]), PGID: int(n[2]), SID: int(n[3]),
		Name: string(b[open+1 : end]), State: f[0][0], RSSBytes: n[4] * int64(os.Getpagesize()),
		StartTicks: n[5], CPUTicks: n[6] + n[7],
	}, nil
}

// Command returns the argument vector of a process. Kernel threads have none.
func Command(pid int) []string {
	b, err := read(pid, "cmdline")
	if b = bytes.TrimRight(b, "\x00"); err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// UID returns the user id of a process.
func UID(pid int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid), &st)
	return st.Uid, err
}

// Env returns the value that a variable had when the process was started, or
// "".
func Env(pid int, name string) string {
	b, err := read(pid, "environ")
	if err != nil {
		return ""
	}
	for len(b) > 0 {
		var entry []byte
		entry, b, _ = bytes.Cut(b, []byte{0})
		if k, v, ok := bytes.Cut(entry, []byte("=")); ok && string(k) == name {
			return string(v)
		}
	}
	return ""
}

// Memory is the kernel's account of memory, in bytes.
type Memory struct {
	Total, Free, Available, Cached int64
}

// ReadMemory returns /proc/meminfo's main figures.
func ReadMemory() (Memory, error) {
	b, err := readFile("/proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			m.Total = n << 10
		case "MemFree:":
			m.Free = n << 10
		case "MemAvailable:":
			m.Available = n << 10
		case "Cached:":
			m.Cached = n << 10
		}
	}
	return m, nil
}

const (
	// maxSockets limits what is read of a table of sockets, and maxFiles the open files of a process that are looked at.
	maxSockets = 1 << 20
	maxFiles   = 4096
	listens    = "0A" // the state of a socket that listens
)

// Listening returns the TCP ports on which sockets listen, by the numbers of the sockets.
func Listening() map[string]uint16 {
	all := map[string]uint16{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if b, err := readUpTo(name, maxSockets); err == nil {
			parseSockets(b, all)
		}
	}
	return all
}

func parseSockets(b []byte, all map[string]uint16) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listens || f[9] == "0" {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil && port != 0 {
			all[f[9]] = uint16(port)
		}
	}
}

// Ports returns which of the sockets that listen a process has open: their ports, sorted.
func Ports(pid int, listening map[string]uint16) (ports []uint16) {
	if len(listening) == 0 {
		return nil
	}
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(folder)
	if err != nil {
		return nil // it has ended
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxFiles)
	for _, name := range names {
		to, err := os.Readlink(folder + "/" + name)
		if err != nil {
			continue
		}
		number, found := strings.CutPrefix(strings.TrimSuffix(to, "]"), "socket:[")
		if port := listening[number]; found && port != 0 {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Ticks is the clock of StartTicks.
func Ticks() int64 { return int64(Uptime()*100 + 0.5) }

// Uptime returns the seconds since the kernel started.
func Uptime() float64 {
	b, err := readFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, _ := strconv.ParseFloat(first, 64)
	return s
}

func read(pid int, name string) ([]byte, error) {
	return readFile("/proc/" + strconv.Itoa(pid) + "/" + name)
}

func readFile(name string) ([]byte, error) { return readUpTo(name, maxRead) }

func readUpTo(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
