package pretend

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/rest"
)

func (w *World) services() api.Services {
	return api.Services{Services: rest.Services{
		Tokens: Tokens{w}, Sandboxes: Sandboxes{w}, Exec: Exec{w}, Files: Files{w}, Templates: Templates{w}, Capturer: Templates{w}, Builder: &apitest.Builder{Made: w.addTemplate},
		Snapshots: Snapshots{w}, Mover: Mover{w}, Events: History{w}, Network: History{w}, Metrics: Exec{w}, Ports: Exec{w}, Links: &apitest.Links{World: Sandboxes{w}}, Cluster: &apitest.Cluster{},
	}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// Handler is the REST API of a world.
func (w *World) Handler() http.Handler {
	return api.New(w.services(), api.Config{LinkKey: []byte("pretend")})
}

// Serve is `bothy serve` as far as `bothy up` and `bothy down` see it. It
// returns the exit code.
func Serve(args []string) int {
	if os.Getenv("PRETEND_SERVE") == "broken" {
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		return 1
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "", "")
	credentials := flags.String("bootstrap-credentials", "", "")
	if flags.Parse(args) != nil {
		return 2
	}
	if err := serve(*listen, *credentials); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(listen, credentials string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	world := New(filepath.Join(filepath.Dir(credentials), "sandboxes"))
	defer world.Close()
	server := api.New(world.services(), api.Config{Listen: listen})
	if err := server.Listen(); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]string{"url": server.URL(), "api_key": Key})
	if err != nil {
		return err
	}
	if err := os.WriteFile(credentials, b, 0o600); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.Serve()
}
