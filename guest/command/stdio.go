package command

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// stdio is both ends of a command's input and output.
type stdio struct {
	childFiles []*os.File // the child's 0, 1 and 2
	shared     *os.File   // in childFiles, but must not be closed

	stdin    *os.File // the agent's end of the input pipe, or nil
	terminal *os.File // the agent's end of the terminal, or nil
	outputs  []source
	input    []byte // does not fit in the pipe and is still to be written
}

// source is one thing that output comes from.
type source struct {
	file   *os.File
	stream Stream
}

// ready reports whether bytes wait to be read.
func (s source) ready() bool {
	ready := false
	if rc, err := s.file.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			ready = err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
		})
	}
	return ready
}

func (m *Manager) openIO(s Spec) (*stdio, error) {
	if s.Terminal != nil {
		return openTerminal(s)
	}
	io := &stdio{shared: m.null}
	stdin := m.null
	if s.Stdin || len(s.Input) > 0 {
		r, w, err := Pipe(false)
		if err != nil {
			return nil, err
		}
		stdin, io.stdin = r, w
		io.feed(s.Input, s.Input != nil)
	}
	io.childFiles = append(io.childFiles, stdin)
	streams := []Stream{Stdout, Stderr}
	if s.MergeStderr {
		streams = streams[:1]
	}
	for _, stream := range streams {
		r, w, err := Pipe(true)
		if err != nil {
			io.closeChild()
			io.closeParent()
			return nil, err
		}
		io.childFiles = append(io.childFiles, w)
		io.outputs = append(io.outputs, source{r, stream})
	}
	if s.MergeStderr {
		io.childFiles = append(io.childFiles, io.childFiles[1])
	}
	return io, nil
}

// feed fills the pipe before it is read, so that a small input needs no goroutine. The rest is
// kept for later.
func (io *stdio) feed(input []byte, whole bool) {
	io.input = input
	if len(input) > 0 {
		// An error will show again when the rest is written.
		if rc, err := io.stdin.SyscallConn(); err == nil {
			rc.Control(func(fd uintptr) {
				if n, err := unix.Write(int(fd), input); err == nil {
					io.input = input[n:]
				}
			})
		}
	}
	if whole && len(io.input) == 0 {
		io.stdin.Close()
	}
}

// Pipe returns both ends of a pipe between the agent and a command. The agent's end, which reads
// if reading is set, does not block.
func Pipe(reading bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	ours := fds[1]
	if reading {
		ours = fds[0]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// openTerminal opens a new pseudo-terminal.
func openTerminal(s Spec) (*stdio, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err := openSlave(fd, s)
	if err != nil {
		master.Close()
		return nil, err
	}
	return &stdio{
		childFiles: []*os.File{slave, slave, slave},
		terminal:   master,
		outputs:    []source{{master, Terminal}},
	}, nil
}

func openSlave(master int, s Spec) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("unlock terminal", err)
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("name terminal", err)
	}
	if err := setSize(master, *s.Terminal); err != nil {
		return nil, err
	}
	name := "/dev/pts/" + strconv.FormatUint(uint64(n), 10)
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	slave := os.NewFile(uintptr(fd), name)
	if s.User != nil {
		// Without this the terminal works, but programs cannot open it by name.
		_ = slave.Chown(int(s.User.UID), -1)
	}
	return slave, nil
}

func setSize(fd int, size Size) error {
	ws := &unix.Winsize{Col: size.Cols, Row: size.Rows}
	return os.NewSyscallError("resize terminal", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, ws))
}

func (io *stdio) child() []uintptr { return fds(io.childFiles) }

func fds(files []*os.File) []uintptr {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
	}
	return fds
}

func (io *stdio) closeChild() {
	for _, f := range io.childFiles {
		if f != io.shared {
			f.Close() // an end of a terminal or pipe may be listed several times: closing again is harmless
		}
	}
}

func (io *stdio) closeParent() {
	if io.stdin != nil {
		io.stdin.Close()
	}
	for _, o := range io.outputs {
		o.file.Close()
	}
}
