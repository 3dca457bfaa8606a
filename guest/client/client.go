// Package client is how the host talks to the guest agent of one sandbox. The
// services use it, one Client for each running sandbox.
//
// A guest runs next to untrusted code and may have been taken over by it. So nothing that it
// says is assumed to be small, complete or in time: reads are bounded, and calls that should be
// short have a time-out.
//
// All errors are *bothy.Error: those that the guest reports keep their code,
// and a guest that cannot be reached is CodeGuest.
package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy/guest/wire/guestpb"
	"github.com/bothy-dev/bothy/internal/random"
)

// shortCall bounds calls that take little more than a round trip, and longCall those whose work
// grows with a folder: on a busy host, removing a hundred thousand files takes a minute.
const (
	shortCall = 30 * time.Second
	longCall  = 10 * time.Minute
)

// Client talks to one guest. Its methods may be called from many goroutines at
// once. It keeps connections open between calls.
type Client struct {
	dial      func(ctx context.Context) (net.Conn, error)
	transport *http.Transport
	key       atomic.Pointer[string]
}

// New returns a client that connects through dial and shows key.
func New(dial func(ctx context.Context) (net.Conn, error), key string) *Client {
	c := &Client{dial: dial, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return bulkConn{conn}, nil
		},
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        5 * time.Minute,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		// The stream of a quiet command opens immediately, too, but a folder is listed or
		// removed before the answer begins.
		// This is later than each call's own time limit, whose error is clearer.
		ResponseHeaderTimeout: longCall + shortCall,
		WriteBufferSize:       32 << 10,
		ReadBufferSize:        32 << 10,
	}}
	c.SetKey(key)
	return c
}

// SetKey changes the key that later calls show.
func (c *Client) SetKey(key string) { c.key.Store(&key) }

// CloseIdle closes unused connections. Call it before a machine is restored in place of another:
// old connections are dead then.
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// WaitReady returns when the guest answers. It tries immediately, and then after pauses that
// grow from a millisecond.
func (c *Client) WaitReady(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(pause*3/2, 50*time.Millisecond) {
		err := c.health(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return unreachable(err)
		}
	}
}

func (c *Client) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	res, err := c.send(ctx, call{method: http.MethodGet, path: "/health", retry: true})
	if err != nil {
		return err
	}
	return drain(res.Body)
}

// Identity is who a sandbox becomes by adoption.
type Identity struct {
	// Key is what later calls need.
	Key       string
	SandboxID string
	Hostname  string
	// Env is the environment of every command.
	Env map[string]string
	// User and Cwd are the defaults; empty leaves them as they are.
	User             string
	Cwd              string
	MemoryLimitBytes int64
	// CABundle holds certificates to trust, as PEM.
	CABundle string
	// ResolvConf is the content of /etc/resolv.conf; empty leaves it alone.
	ResolvConf string
	// MachineID and Entropy are generated if empty.
	MachineID string
	Entropy   []byte
}

// Adopted is what the guest reports about its adoption.
type Adopted struct {
	Version, Kernel string
	// ClockSkew is how far the guest's clock was behind.
	ClockSkew time.Duration
	// Warnings name what could not be set although the guest works.
	Warnings []string
}

// Adopt gives the sandbox its identity, and the client its key. It may be repeated if it is not
// known whether it worked.
func (c *Client) Adopt(ctx context.Context, id Identity) (*Adopted, error) {
	req := &guestpb.AdoptRequest{
		Key: id.Key, SandboxId: id.SandboxID, Hostname: id.Hostname, MachineId: id.MachineID, Env: id.Env,
		UnixNano: time.Now().UnixNano(), Entropy: id.Entropy, DefaultUser: id.User, DefaultCwd: id.Cwd,
		MemoryLimitBytes: id.MemoryLimitBytes, ResolvConf: id.ResolvConf,
	}
	if id.CABundle != "" {
		sum := sha256.Sum256([]byte(id.CABundle))
		req.CaBundleSha256 = sum[:]
	}
	if req.MachineId == "" {
		req.MachineId = random.Hex(16)
	}
	if len(req.Entropy) == 0 {
		req.Entropy = make([]byte, 64)
		rand.Read(req.Entropy)
	}
	var res guestpb.AdoptResponse
	err := c.unary(ctx, rpc{procedure: guestpb.GuestAdoptProcedure}, req, &res)
	if errors.Is(err, errKeyRefused) && id.Key != *c.key.Load() {
		// An earlier adoption may have succeeded without our knowing.
		c.SetKey(id.Key)
		err = c.unary(ctx, rpc{procedure: guestpb.GuestAdoptProcedure}, req, &res)
	}
	if err != nil {
		return nil, err
	}
	c.SetKey(id.Key)
	if res.NeedCaBundle {
		req.CaBundle = id.CABundle
		if err := c.unary(ctx, rpc{procedure: guestpb.GuestAdoptProcedure}, req, &res); err != nil {
			return nil, err
		}
	}
	a := &Adopted{Version: clip(res.Version), Kernel: clip(res.Kernel), ClockSkew: time.Duration(res.ClockSkewNs)}
	for _, w := range res.Warnings[:min(len(res.Warnings), maxWarnings)] {
		a.Warnings = append(a.Warnings, clip(w))
	}
	return a, nil
}

// maxWarnings bounds how many warnings of an adoption are passed on: they are logged.
const maxWarnings = 16

// Victim is a process that was killed to free memory.
type Victim struct {
	PID      int
	Name     string
	RSSBytes int64
	// CommandPID is the command that it belonged to, or 0.
	CommandPID int
}

// KillLargest kills the user process that holds the most memory. Its command will report the
// limit, in bytes, as the reason. It returns nil if there was nothing to kill.
func (c *Client) KillLargest(ctx context.Context, limit int64) (*Victim, error) {
	var res guestpb.KillLargestResponse
	err := c.unary(ctx, rpc{procedure: guestpb.GuestKillLargestProcedure}, &guestpb.KillLargestRequest{LimitBytes: limit}, &res)
	if err != nil || !res.Killed {
		return nil, err
	}
	return &Victim{PID: int(res.Pid), Name: clip(res.Name), RSSBytes: res.RssBytes, CommandPID: int(res.CommandPid)}, nil
}

// Freeze prepares the guest for a snapshot.
func (c *Client) Freeze(ctx context.Context) error {
	return c.unary(ctx, rpc{procedure: guestpb.GuestFreezeProcedure}, &guestpb.FreezeRequest{}, &guestpb.FreezeResponse{})
}

// Thaw ends what Freeze began.
func (c *Client) Thaw(ctx context.Context) error {
	return c.unary(ctx, rpc{procedure: guestpb.GuestThawProcedure}, &guestpb.ThawRequest{}, &guestpb.ThawResponse{})
}

// Stats is what a sandbox uses, as seen from inside.
type Stats struct {
	Processes        int
	Commands         int
	Interpreters     int
	CPUs             int
	MemoryTotalBytes int64
	MemoryUsedBytes  int64
	MemoryCacheBytes int64
	DiskTotalBytes   int64
	DiskUsedBytes    int64
	// GuestRSSBytes is the agent's own memory.
	GuestRSSBytes int64
	Uptime        time.Duration
}

// Stats returns what the sandbox uses.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	var res guestpb.StatsResponse
	if err := c.unary(ctx, rpc{procedure: guestpb.GuestStatsProcedure, retry: true}, &guestpb.StatsRequest{}, &res); err != nil {
		return nil, err
	}
	return &Stats{
		Processes: int(res.Processes), Commands: int(res.Commands), Interpreters: int(res.Interpreters), CPUs: int(res.Cpus),
		MemoryTotalBytes: res.MemoryTotalBytes, MemoryUsedBytes: res.MemoryUsedBytes, MemoryCacheBytes: res.MemoryCacheBytes,
		DiskTotalBytes: res.DiskTotalBytes, DiskUsedBytes: res.DiskUsedBytes, GuestRSSBytes: res.GuestRssBytes,
		Uptime: time.Duration(res.UptimeSeconds * float64(time.Second)),
	}, nil
}
