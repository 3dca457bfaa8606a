package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/test/testserver"
)

// wires is a network with a namespace for each node. Any two nodes can be cut off from each other, so
// that packets between them are silently lost. This computer is in the network too, at the address
// self, and is never cut off.
type wires struct {
	*testing.T
	name  string
	net   string
	nodes []string
}

// newWires makes a network of nodes. It needs root and iproute2, but no firewall support in the kernel.
func newWires(t *testing.T, nodes ...string) *wires {
	t.Helper()
	w := &wires{T: t, nodes: nodes}
	// Networks of running processes are locked; a process that has ended may have left its network behind.
	for n := 100; ; n++ {
		if n == 200 {
			t.Fatal("no network is free")
		}
		f, err := os.OpenFile(fmt.Sprintf("/run/bothytest%d.lock", n), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			f.Close()
			continue
		}
		w.name, w.net = fmt.Sprint("bothytest", n), fmt.Sprintf("10.213.%d.", n)
		t.Cleanup(func() {
			w.remove()
			os.Remove(f.Name())
			f.Close()
		})
		break
	}
	w.remove()
	// The bridge has its own namespace, so that this computer's firewall does not apply to it.
	hub := w.name + "-net"
	w.ip("netns", "add", hub)
	w.ip("-n", hub, "link", "add", "bridge", "type", "bridge")
	w.ip("-n", hub, "link", "set", "bridge", "up")
	w.ip("link", "add", w.name, "type", "veth", "peer", "name", "outside", "netns", hub)
	w.ip("-n", hub, "link", "set", "outside", "master", "bridge", "up")
	w.ip("address", "add", w.self()+"/24", "dev", w.name)
	w.ip("link", "set", w.name, "up")
	for _, node := range nodes {
		ns := w.namespace(node)
		w.ip("netns", "add", ns)
		w.ip("-n", hub, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", ns)
		w.ip("-n", hub, "link", "set", node, "master", "bridge", "up")
		w.ip("-n", ns, "address", "add", w.address(node)+"/24", "dev", "eth0")
		w.ip("-n", ns, "link", "set", "eth0", "up")
		w.ip("-n", ns, "link", "set", "lo", "up")
	}
	return w
}

func (w *wires) remove() {
	_ = exec.Command("ip", "link", "del", w.name).Run()
	left, _ := filepath.Glob("/run/netns/" + w.name + "-*")
	for _, ns := range left {
		_ = exec.Command("ip", "netns", "del", filepath.Base(ns)).Run()
	}
}

func (w *wires) ip(args ...string) {
	w.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (w *wires) namespace(node string) string { return w.name + "-" + node }

func (w *wires) self() string { return w.net + "1" }

func (w *wires) address(node string) string {
	for i, n := range w.nodes {
		if n == node {
			return w.net + fmt.Sprint(11+i)
		}
	}
	w.Fatalf("there is no node %s", node)
	return ""
}

// cut cuts nodes off from each other: their packets go to a hardware address that no node has.
func (w *wires) cut(a string, from ...string) {
	w.Helper()
	for _, b := range from {
		for _, way := range [][2]string{{a, b}, {b, a}} {
			w.ip("-n", w.namespace(way[0]), "neigh", "replace", w.address(way[1]), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
		}
	}
}

func (w *wires) mend(a string, from ...string) {
	w.Helper()
	for _, b := range from {
		for _, way := range [][2]string{{a, b}, {b, a}} {
			w.ip("-n", w.namespace(way[0]), "neigh", "del", w.address(way[1]), "dev", "eth0")
		}
	}
}

// serve forwards an address of a node to an address of this computer, and returns the former.
func (w *wires) serve(node, network, address string) string {
	w.Helper()
	l, err := listenIn(w.namespace(node), w.address(node)+":0")
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(func() { cancel(); l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go carryTo(ctx, near, network, address)
		}
	}()
	return l.Addr().String()
}

// listenIn listens in a network namespace.
func listenIn(namespace, address string) (l net.Listener, err error) {
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	other, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	done := make(chan struct{})
	go func() {
		// The thread must not end, since programs that were started from it would end with it.
		runtime.LockOSThread()
		if err = unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp4", address)
		}
		back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		if err = errors.Join(err, back); back == nil {
			runtime.UnlockOSThread()
		}
		close(done)
		if back != nil {
			select {}
		}
	}()
	<-done
	return l, err
}

func carryTo(ctx context.Context, near net.Conn, network, address string) {
	defer near.Close()
	far, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			way[1].Close()
		})
	}
	both.Wait()
}

// farHosts are hosts in separate namespaces that reach the database and the object storage over one
// network.
type farHosts struct {
	*wires
	hosts   []*server
	pg      *pgtest.Server
	objects *s3test.Server
}

const (
	nodeDB = "db"
	nodeS3 = "s3"
)

// newFarHosts starts hosts in a network. settings gets the address of this computer in it, and
// returns more settings for all hosts.
func newFarHosts(t *testing.T, leaseSeconds int, settings func(self string) string, names ...string) *farHosts {
	t.Helper()
	f := &farHosts{pg: testserver.Postgres(t), objects: s3test.StartIn(t, t.TempDir())}
	f.wires = newWires(t, append([]string{nodeDB, nodeS3}, names...)...)
	database := strings.TrimPrefix(f.pg.Database(t), "postgres:///")
	database, _, _ = strings.Cut(database, "?")
	database = "postgres://postgres@" + f.serve(nodeDB, "unix", filepath.Join(f.pg.Dir(), pgSocket)) + "/" + database + "?sslmode=disable"
	keys := filepath.Join(t.TempDir(), "keys")
	text := "[default]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + s3test.SecretKey + "\n"
	if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.objects.Bucket(t, "bothy")
	endpoint := "http://" + f.serve(nodeS3, "tcp", strings.TrimPrefix(f.objects.Endpoint(), "http://"))
	bucket := "s3://bothy?endpoint=" + url.QueryEscape(endpoint) + "&region=" + s3test.Region + "&path_style=true&credentials=" + keys
	kernels, err := kernelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	more := settings(f.self())
	for i, name := range names {
		s := stoppedServer(t)
		s.NoPool, s.Store, s.Env = true, database, []string{"BOTHY_KERNELS=" + kernels}
		s.Args = []string{"--listen", f.address(name) + ":7700"}
		// Not with ip netns exec, which hides the cgroups.
		s.Wrap = []string{"nsenter", "--net=/run/netns/" + f.namespace(name)}
		s.Settings = fmt.Sprintf("insecure: true\ncluster:\n  name: %s\n  listen: %s:7710\n  lease_seconds: %d\nblobs: %s\n%s", name, f.address(name), leaseSeconds, bucket, more)
		if i > 0 {
			f.hosts[0].admits(t, s)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		f.hosts = append(f.hosts, s)
	}
	t.Cleanup(func() {
		if t.Failed() { // hosts stop faster with a working network
			for i, a := range f.nodes {
				for _, b := range f.nodes[:i] {
					_ = exec.Command("ip", "-n", f.namespace(a), "neigh", "del", f.address(b), "dev", "eth0").Run()
					_ = exec.Command("ip", "-n", f.namespace(b), "neigh", "del", f.address(a), "dev", "eth0").Run()
				}
			}
		}
	})
	return f
}
