// Package folder gives machines of the fake engine a real guest: the agent runs as a child
// process, and a folder takes the place of the sandbox's root. It isolates nothing: commands
// are processes of this host with this user's rights, see its files, and listen on its
// loopback. Snapshots hold the files alone. It needs no root. Only tests use it.
package folder

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/guest/agent"
	"github.com/bothy-dev/bothy/internal/random"
)

// Inside is the inside of a machine.
type Inside struct {
	root  string
	agent string // the address of its socket
	cmd   *exec.Cmd
	alive io.Closer // ends the agent
}

var _ fake.Inside = (*Inside)(nil)

// Boot returns a fake.Host's Boot that makes folders in dir.
func Boot(dir string) func(id string, files io.Reader) (fake.Inside, error) {
	return func(id string, files io.Reader) (fake.Inside, error) {
		root, err := os.MkdirTemp(dir, id+"-")
		if err != nil {
			return nil, err
		}
		i := &Inside{root: root}
		if err = i.fill(files); err == nil {
			err = i.start()
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(root))
		}
		return i, nil
	}
}

// fill unpacks a tar that Save wrote.
func (i *Inside) fill(files io.Reader) error {
	if err := os.MkdirAll(filepath.Join(i.root, bothy.DefaultCwd), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return err
	}
	defer root.Close()
	for tr := tar.NewReader(files); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = put(root, h, tr)
		}
		if err != nil {
			return err
		}
	}
}

func put(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, h.FileInfo().Mode().Perm())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
}

// Save implements fake.Inside. Pipes and sockets are left out.
func (i *Inside) Save(w io.Writer) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(i.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == i.root || d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
			return err
		}
		return i.add(tw, path, d)
	})
	return errors.Join(err, tw.Close())
}

func (i *Inside) add(tw *tar.Writer, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link, _ := os.Readlink(path)
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if h.Name, err = filepath.Rel(i.root, path); err != nil {
		return err
	}
	if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(tw, f, info.Size())
	return err
}

// agentName is what a program is called that is to be an agent. Its argument is its root.
const agentName = "bothy-fake-guest"

func init() {
	if len(os.Args) == 2 && os.Args[0] == agentName {
		if err := beAgent(os.Args[1]); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
}

// start runs this program again, as an agent.
func (i *Inside) start() error {
	i.agent = "@bothy-fake-" + random.Hex(8)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: i.agent})
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return err
	}
	defer f.Close()
	i.cmd = exec.Command("/proc/self/exe")
	i.cmd.Args = []string{agentName, i.root}
	i.cmd.Stderr, i.cmd.ExtraFiles = os.Stderr, []*os.File{f}
	if i.alive, err = i.cmd.StdinPipe(); err != nil {
		return err
	}
	return i.cmd.Start()
}

// beAgent serves on the inherited socket until standard input ends.
func beAgent(root string) error {
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{Version: "fake", Root: root, User: me.Username, Cwd: filepath.Join(root, bothy.DefaultCwd)})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	err = a.Serve(l)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, a.Close())
}

// Dial implements fake.Inside: other ports than the guest's are this host's.
func (i *Inside) Dial(port uint16) (net.Conn, error) {
	if port == bothy.GuestPort {
		return net.Dial("unix", i.agent)
	}
	return net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// Close implements fake.Inside.
func (i *Inside) Close() error {
	return errors.Join(i.alive.Close(), i.cmd.Wait(), os.RemoveAll(i.root))
}
