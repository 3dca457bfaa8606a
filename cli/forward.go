package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newForward(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "forward SANDBOX [LOCAL:]PORT…",
		Short: "Make ports of a sandbox reachable on this host",
		Long: `Make TCP ports of a sandbox reachable on this host, until Ctrl-C. Without LOCAL
the port is the same here; 0 picks a free one. The sandbox's network policy does
not matter: nothing in the sandbox can reach out through this.`,
		Example: `  bothy forward sbx4f2a 8000
  bothy forward sbx4f2a 8080:80 0:5432`,
		Args: usage(cobra.MinimumNArgs(2)),
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "`address` of this host to listen on")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		ports, err := parseForwards(args[1:])
		if err != nil {
			return err
		}
		// A missing sandbox is reported now, not at the first connection.
		if _, err := s.sandboxes.Get(ctx, args[0]); err != nil {
			return interrupted(ctx, err)
		}
		return a.forward(ctx, s, args[0], address, ports)
	})
	return cmd
}

// forwardPort connects a port of this host to one of a sandbox.
type forwardPort struct{ local, remote uint16 }

func parseForwards(words []string) ([]forwardPort, error) {
	list := make([]forwardPort, len(words))
	for i, word := range words {
		local, remote, both := strings.Cut(word, ":")
		if !both {
			remote = local
		}
		from, err := strconv.ParseUint(local, 10, 16)
		to, err2 := strconv.ParseUint(remote, 10, 16)
		if err != nil || err2 != nil || to == 0 {
			return nil, usagef("Write it as PORT or LOCAL:PORT, as in 8080:80.", "%q is not a port", word)
		}
		list[i] = forwardPort{uint16(from), uint16(to)}
	}
	return list, nil
}

// forward listens on every port before it says so, and returns when ctx ends.
func (a *app) forward(ctx context.Context, s *session, id, address string, ports []forwardPort) error {
	for _, p := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(p.local))))
		if err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		defer l.Close()
		go a.accept(ctx, s, id, l, p.remote)
		if err := a.sayForward(l.Addr().String(), id, p.remote); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (a *app) sayForward(local, id string, port uint16) error {
	if a.json {
		return a.printJSON(map[string]any{"local": local, "sandbox_id": id, "port": port})
	}
	_, err := fmt.Fprintf(a.stdout, "http://%s leads to port %d of %s\n", local, port, id)
	return err
}

func (a *app) accept(ctx context.Context, s *session, id string, l net.Listener, port uint16) {
	for {
		local, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer local.Close()
			remote, err := s.ports.DialPort(ctx, id, port)
			if err != nil {
				if ctx.Err() == nil {
					a.printError(err)
				}
				return
			}
			tunnel(local, remote)
		}()
	}
}

// lingerTime is how long the sandbox's server may keep answering a client that has sent
// everything.
const lingerTime = 30 * time.Second

// tunnel copies bytes both ways until the sandbox's side ends. A WebSocket cannot be
// half-closed, so the end of the client's input is not passed on.
func tunnel(local, remote net.Conn) {
	defer remote.Close()
	go func() {
		_, err := io.Copy(remote, local)
		if err != nil && !errors.Is(err, io.EOF) {
			_ = remote.Close()
			return
		}
		_ = remote.SetReadDeadline(time.Now().Add(lingerTime))
	}()
	_, _ = io.Copy(local, remote)
}
