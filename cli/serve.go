//go:build linux && !clientonly

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/server"
)

type serveFlags struct {
	config      string
	printConfig bool
	bootstrap   string
	listen      string
	insecure    bool
	allowHosts  []string
	trustHostCA bool
	max         int
	logLevel    string
	logFormat   string
}

func newServe(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server in the foreground",
		Long: `Run the server in the foreground until it is told to stop (Ctrl-C, SIGTERM).
It then starts no more sandboxes and finishes requests in flight, for at most
shutdown_seconds. Sandboxes keep running, and the next server with the
same BOTHY_HOME finds them again. bothy up does this in the background, and
bothy down stops either.

It prints where it listens and which file holds a key. At its first start it
creates that key, which may do everything, and writes it to where commands and
SDKs look for it: ~/.config/bothy/credentials.json, or the same below
$XDG_CONFIG_HOME. A file there that is for another server stays as it is; the
key is then in $BOTHY_HOME/admin.json. SIGHUP reloads the TLS certificate. If
there is none, it stops a server that runs in a terminal, and no other.

Settings come from flags, then from BOTHY_HOME, BOTHY_STORE, BOTHY_BLOBS,
BOTHY_LISTEN, BOTHY_TEMPLATES and BOTHY_KERNELS, then from the file named by --config.`,
		Example: `  sudo bothy serve
  sudo bothy serve --print-config >/etc/bothy.yaml
  sudo bothy serve --config /etc/bothy.yaml --trust-host-ca`,
		Args: usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "file with settings")
	flags.BoolVar(&f.printConfig, "print-config", false, "print a file with every setting and its default, and exit")
	flags.StringVar(&f.bootstrap, "bootstrap-credentials", "", "write a first admin key to this `file`, unless it holds a valid one, and to no other")
	flags.StringVar(&f.listen, "listen", "", "address to listen on (default 127.0.0.1:7700, also $BOTHY_LISTEN)")
	flags.BoolVar(&f.insecure, "insecure", false, "listen beyond this host even without TLS")
	flags.StringSliceVar(&f.allowHosts, "allow-host", nil, "further name under which the API may be addressed")
	flags.BoolVar(&f.trustHostCA, "trust-host-ca", false, "let sandboxes trust the certificate authorities that this host trusts")
	flags.IntVar(&f.max, "max-sandboxes", 0, "how many sandboxes may run at once")
	flags.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.printConfig {
			_, err := fmt.Fprint(a.stdout, config.Example)
			return err
		}
		c, err := f.settings(cmd)
		if err != nil {
			return err
		}
		return a.serve(cmd.Context(), c, f.bootstrap)
	}
	return cmd
}

// settings applies the flags over the file and the environment.
func (f serveFlags) settings(cmd *cobra.Command) (config.Config, error) {
	c, err := config.Load(f.config, os.Getenv)
	if err != nil {
		return c, err
	}
	given := cmd.Flags().Changed
	if given("listen") {
		c.Listen = f.listen
	}
	if given("insecure") {
		c.Insecure = f.insecure
	}
	if given("allow-host") {
		c.AllowedHosts = append(c.AllowedHosts, f.allowHosts...)
	}
	if given("trust-host-ca") {
		c.Network.TrustHostCA = f.trustHostCA
	}
	if given("max-sandboxes") {
		c.Sandboxes.Max = f.max
	}
	if given("log-format") {
		c.LogFormat = f.logFormat
	}
	if given("log-level") {
		if err := c.LogLevel.UnmarshalText([]byte(f.logLevel)); err != nil {
			return c, usageError(cmd, fmt.Errorf("--log-level %q is not debug, info, warn or error", f.logLevel))
		}
	}
	return c, c.Finish()
}

func newLogger(c config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// serve runs the server until ctx ends.
func (a *app) serve(ctx context.Context, c config.Config, bootstrap string) error {
	s, err := server.New(ctx, c, server.Options{Version: a.version, Log: newLogger(c)})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Listen(); err != nil {
		return err
	}
	done, err := a.announce(ctx, s, bootstrap, c.TLS.CertFile)
	if done != nil {
		defer done()
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	hangUp := func() { s.Log().Info("SIGHUP has no effect: there is no TLS certificate to reload") }
	if isTerminal(a.stdin) {
		hangUp = stop // the terminal was closed
	}
	go onSignals(ctx, signals, s, hangUp)
	return s.Serve(ctx)
}

// signalled is a server as far as signals concern it.
type signalled interface {
	ReloadCertificate() bool
}

// onSignals reloads the certificate at each SIGHUP, or calls hangUp if there is no TLS. SIGUSR1, which
// had earlier versions verify the object storage, has no effect.
func onSignals(ctx context.Context, signals <-chan os.Signal, s signalled, hangUp func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			if sig == syscall.SIGHUP && !s.ReloadCertificate() {
				hangUp()
			}
		}
	}
}
