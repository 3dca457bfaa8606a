package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
)

// OutsideName is the name of the host outside, and outsideAddr its address, which is one of
// those reserved for documentation.
const (
	OutsideName = "outside.example.org"
	outsideAddr = "198.51.100.2"
	insideAddr  = "198.51.100.1"
)

// OutsideSettings are the settings with which a server's sandboxes may reach the host outside.
const OutsideSettings = "network:\n  allow: [" + outsideAddr + "/32]\n"

// Outside is a host of its own, in a network namespace behind a cable, with the payload as its
// web server.
type Outside struct {
	// URL is the server's, without a path. Sandboxes and the host resolve its name; containers
	// get it as an argument.
	URL string

	program string   // this one, which has the payload in it
	words   []string // after the program's name, before the payload's own
	pid     int
}

// Outside starts the host outside.
func (l *Lab) Outside(ctx context.Context) (*Outside, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := &Outside{URL: "http://" + OutsideName, program: self, words: l.Payload}
	if err := l.nameOutside(); err != nil {
		return nil, err
	}
	serve := exec.Command(o.program, o.args("serve", outsideAddr+":80")...)
	serve.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := l.start("outside", serve); err != nil {
		return nil, err
	}
	o.pid = serve.Process.Pid
	if err := cableTo(o.pid); err != nil {
		return nil, fmt.Errorf("make the cable to the host outside: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return o, await(wait, "wait for the host outside", func() error {
		res, err := http.Get("http://" + outsideAddr + "/bytes/1")
		if err != nil {
			return fmt.Errorf("%w: %s", err, l.logTail("outside"))
		}
		return res.Body.Close()
	})
}

func (o *Outside) args(args ...string) []string { return append(slices.Clone(o.words), args...) }

// nameOutside gives the host outside its name, for every resolver in this mount namespace.
func (l *Lab) nameOutside() error {
	hosts := filepath.Join(l.Dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+outsideAddr+" "+OutsideName+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("replace /etc/hosts: %w", err)
	}
	l.undo.Add(func() { _ = unix.Unmount("/etc/hosts", unix.MNT_DETACH) })
	return nil
}

// cableTo connects this network namespace to that of a process.
func cableTo(pid int) error {
	err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "outside"}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid),
	})
	if err != nil {
		return err
	}
	there, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer there.Close()
	h, err := netlink.NewHandleAt(there)
	if err != nil {
		return err
	}
	defer h.Close()
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	return errors.Join(setUp(here, "outside", insideAddr), setUp(h, "eth0", outsideAddr))
}

func setUp(h *netlink.Handle, name, addr string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(addr), Mask: net.CIDRMask(24, 32)}}
	if err := h.AddrAdd(link, a); err != nil {
		return err
	}
	return h.LinkSetUp(link)
}

// Slow limits what the host outside sends to so many bits per second, like real hosts.
func (o *Outside) Slow(bits uint64) error {
	there, err := netns.GetFromPid(o.pid)
	if err != nil {
		return err
	}
	defer there.Close()
	h, err := netlink.NewHandleAt(there)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	return h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bits / 8, Limit: 8 << 20, Buffer: 1 << 20,
	})
}

// A Runner runs the payload program with some arguments, somewhere, and returns its output.
type Runner func(ctx context.Context, args ...string) (string, error)

// Direct runs it in this network namespace, one cable from the host outside.
func (o *Outside) Direct() Runner {
	return func(ctx context.Context, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, o.program, o.args(args...)...)
		out, err := cmd.Output()
		return string(out), err
	}
}

// PayloadPath is where sandboxes and containers have the program.
const PayloadPath = "/usr/local/bin/payload"

// InSandbox puts the program into a sandbox and runs it there.
func (o *Outside) InSandbox(ctx context.Context, t bench.Target, id string) (Runner, error) {
	f, err := os.Open(o.program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := t.Client.Files.Write(ctx, id, PayloadPath, f, bothy.WriteOptions{User: "root", Mode: 0o755}); err != nil {
		return nil, err
	}
	return func(ctx context.Context, args ...string) (string, error) {
		r, err := t.Run(ctx, id, bothy.Command{Args: append([]string{PayloadPath}, o.args(args...)...)})
		if err != nil {
			return "", err
		}
		return r.Stdout, nil
	}, nil
}

// InContainer starts a container on Docker's own bridge and runs the program in
// it. Options are docker's, for that container.
func (o *Outside) InContainer(d *Docker, options ...string) (Runner, error) {
	id, err := d.Output(slices.Concat([]string{"run", "-d", "--network", "bridge", "--add-host", OutsideName + ":" + outsideAddr,
		"-v", o.program + ":" + PayloadPath + ":ro"}, options, []string{dockerImage, "/bin/sleep", "infinity"})...)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, args ...string) (string, error) {
		return d.Output(append([]string{"exec", id, PayloadPath}, o.args(args...)...)...)
	}, nil
}

// Downloads is a subject that fetches so many bytes and records the rate.
func (o *Outside) Downloads(name string, run Runner, bytes int64, measure string) bench.Subject {
	return bench.Subject{Name: name, Once: func(ctx context.Context, record bench.Record) error {
		var d struct {
			Bytes   int64
			Seconds float64
		}
		if err := decode(ctx, run, &d, "fetch", fmt.Sprintf("%s/bytes/%d", o.URL, bytes)); err != nil {
			return err
		}
		if d.Bytes != bytes {
			return fmt.Errorf("got %d of %d bytes", d.Bytes, bytes)
		}
		record(measure, float64(d.Bytes)*8/1e9/d.Seconds)
		return nil
	}}
}

// Connects is a subject that opens n connections and records the medians.
func (o *Outside) Connects(name string, run Runner, n int, connect, first string) bench.Subject {
	return bench.Subject{Name: name, Once: func(ctx context.Context, record bench.Record) error {
		var c struct {
			Connect   float64 `json:"connect_ms"`
			FirstByte float64 `json:"first_byte_ms"`
		}
		if err := decode(ctx, run, &c, "connect", o.URL+"/bytes/1", fmt.Sprint(n)); err != nil {
			return err
		}
		record(connect, c.Connect)
		record(first, c.FirstByte)
		return nil
	}}
}

// Bursts is a subject that opens n connections, so many concurrently, and records the rate per
// second and how long the slowest took to open.
func (o *Outside) Bursts(name string, run Runner, n, parallel int, rate, slowest string) bench.Subject {
	return bench.Subject{Name: name, Once: func(ctx context.Context, record bench.Record) error {
		var b struct {
			Rate    float64
			Slowest float64 `json:"slowest_ms"`
		}
		if err := decode(ctx, run, &b, "burst", o.URL+"/bytes/1", fmt.Sprint(n), fmt.Sprint(parallel)); err != nil {
			return err
		}
		record(rate, b.Rate)
		record(slowest, b.Slowest)
		return nil
	}}
}

func decode(ctx context.Context, run Runner, into any, args ...string) error {
	out, err := run(ctx, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("the payload printed %q: %w", out, err)
	}
	return nil
}
