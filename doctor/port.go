package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (h *Host) checkPort(ctx context.Context) Result {
	l, err := net.Listen("tcp", h.Listen)
	if err == nil {
		_ = l.Close()
		return ok(fmt.Sprintf("%s is free.", h.Listen))
	}
	if Healthy(ctx, h.Listen) {
		return ok(fmt.Sprintf("A Bothy server answers on %s.", h.Listen))
	}
	if owner := PortOwner(h.Listen); owner != "" {
		return fail(fmt.Sprintf("%s is taken by %s.", h.Listen, owner), "Stop that program, or choose another address with --listen.")
	}
	return fail(fmt.Sprintf("%s cannot be listened on: %v.", h.Listen, err), "Choose another address with --listen.")
}

// Healthy reports whether a Bothy server answers on an address, with or without TLS. It is not
// authenticated, as it is sent nothing.
func Healthy(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if status := health(ctx, http.DefaultClient, "http://"+addr); status != http.StatusBadRequest {
		return status == http.StatusOK
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	return health(ctx, &http.Client{Transport: t}, "https://"+addr) == http.StatusOK
}

// health returns the status of the answer, or 0.
func health(ctx context.Context, c *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return 0
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// PortOwner names the process that listens on an address, as in "nginx (pid 812)", or returns
// "".
func PortOwner(addr string) string {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listenerInode(table, port); inode != "" {
			return socketOwner(inode)
		}
	}
	return ""
}

// listenerInode finds the socket that listens on a port. The fields of a line are: number, local
// address, remote address, state, …, inode as the tenth.
func listenerInode(table string, port uint64) string {
	const listening = "0A"
	b, err := os.ReadFile(table)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && n == port {
			return f[9]
		}
	}
	return ""
}

// socketOwner finds the process that holds a socket.
func socketOwner(inode string) string {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(link, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}
