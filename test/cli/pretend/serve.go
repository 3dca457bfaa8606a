package pretend

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/bothy-dev/bothy/api"
)

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
	world, err := New(filepath.Dir(credentials))
	if err != nil {
		return err
	}
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
