package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

func init() { roles["connects"] = connects }

// connects opens N connections, a given number at a time, each until the server closes it. It
// prints how many took more than half a second to connect, and the slowest in milliseconds.
func connects(args []string) error {
	n, _ := strconv.Atoi(args[1])
	parallel, _ := strconv.Atoi(args[2])
	first := []byte("x")
	if len(args) > 3 {
		first = clientHello(nil, args[3])
	}
	var mu sync.Mutex
	var late int
	var slowest time.Duration
	var errs []error
	turns := make(chan struct{}, n)
	for range n {
		turns <- struct{}{}
	}
	close(turns)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for range turns {
				took, err := connectOnce(args[0], first)
				mu.Lock()
				if took > 500*time.Millisecond {
					late++
				}
				slowest = max(slowest, took)
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d failed: %w", len(errs), n, errors.Join(errs[:min(len(errs), 3)]...))
	}
	fmt.Println(late, slowest.Milliseconds())
	return nil
}

// connectOnce returns how long connect took. The server closes first, so the client's port is free
// again at once while the gateway's end still waits.
func connectOnce(addr string, first []byte) (time.Duration, error) {
	start := time.Now()
	c, err := net.Dial("tcp4", addr)
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := c.Write(first); err != nil {
		return took, err
	}
	_, err = io.Copy(io.Discard, c)
	return took, err
}

// answerAndClose is a server that closes first.
func answerAndClose(c net.Conn) {
	defer c.Close()
	if _, err := c.Read(make([]byte, 64<<10)); err != nil {
		return
	}
	_, _ = c.Write([]byte("y"))
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// portRange limits the local ports of the namespace's kernel, so that each is soon reused.
func (ns *namespace) portRange(low, high int) {
	ns.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", ns.name, "sh", "-c", fmt.Sprintf("echo %d %d >/proc/sys/net/ipv4/ip_local_port_range", low, high))
	if out, err := cmd.CombinedOutput(); err != nil {
		ns.t.Fatalf("set the range of ports: %v: %s", err, out)
	}
}

// A sandbox may reuse a port at once: the new connection does not wait for the gateway's end of the
// old one.
func TestConnectionsInARowDoNotWait(t *testing.T) {
	ns, g, outside := newRealLab(t)
	outside.name("good.example", "5.6.7.8")
	outside.serve("5.6.7.8:9000", answerAndClose)
	outside.serve("5.6.7.8:443", answerAndClose)
	total := 5000
	if testing.Short() {
		total = 500
	}
	for _, mode := range []string{"open", "restricted"} {
		args := []string{"5.6.7.8:9000"}
		policy := open
		if mode == "restricted" {
			policy = only("good.example")
			args = []string{g.names.standIn("good.example").String() + ":443"}
		}
		if err := g.SetPolicy(policy); err != nil {
			t.Fatal(err)
		}
		for _, parallel := range []int{1, 64} {
			ns.portRange(40000, 40000+8*parallel)
			role := append([]string{"connects"}, args[0], fmt.Sprint(total), fmt.Sprint(parallel))
			if mode == "restricted" {
				role = append(role, "good.example")
			}
			start := time.Now()
			out, err := ns.run(role...)
			if err != nil {
				t.Fatalf("%s, %d at once: %v", mode, parallel, err)
			}
			var late, slowest int
			if _, err := fmt.Sscan(out, &late, &slowest); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d at once: %d connections in %v, %d late, the slowest took %d ms", mode, parallel, total, time.Since(start).Round(time.Millisecond), late, slowest)
			// A few may be late because the machine is busy.
			if late > total/50 {
				t.Errorf("%s, %d at once: %d of %d connections waited more than half a second, the slowest %d ms", mode, parallel, late, total, slowest)
			}
		}
	}
}
