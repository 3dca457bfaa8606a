//go:build linux && !clientonly

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/doctor"
)

// upResult is what `up --json` prints.
type upResult struct {
	URL            string   `json:"url"`
	PID            int      `json:"pid"`
	AlreadyRunning bool     `json:"already_running"`
	Credentials    string   `json:"credentials"`
	Log            string   `json:"log"` // "" if it goes to no file
	Templates      []string `json:"templates"`
}

type upFlags struct {
	listen   string
	install  bool
	template string
}

func newUp(a *app) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up [-- SERVE FLAGS…]",
		Short: "Start the server on this host, in the background",
		Long: `Check this host, start the server in the background, create the first API key,
and print the server's URL and where the key is. Running it again is safe.

The server keeps its state and its log in $BOTHY_HOME (default /var/lib/bothy).
The key goes to ~/.config/bothy/credentials.json, or the same below
$XDG_CONFIG_HOME, unless that file is for another server. A server that bothy
serve started with the same $BOTHY_HOME is found, too. Arguments after -- are
passed on to bothy serve.`,
		Example: `  sudo bothy up
  sudo bothy up --install --template python-3.12-bare
  sudo BOTHY_HOME=/srv/second bothy up --listen 127.0.0.1:7800`,
		Args: usage(cobra.ArbitraryArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", listenAddress(), "`address` to listen on (also $BOTHY_LISTEN)")
	flags.BoolVar(&f.install, "install", false, "install missing tools with apt-get")
	flags.StringVar(&f.template, "template", "", "build this `template`, too, if it is missing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
			return usageError(cmd, fmt.Errorf("unknown argument %q", args[0]))
		}
		return a.up(cmd.Context(), f, args)
	}
	return cmd
}

func (a *app) up(ctx context.Context, f upFlags, serveArgs []string) error {
	server, already, err := a.ensureServer(ctx, f, serveArgs)
	if err != nil {
		return err
	}
	path, err := a.publishCredentials(ctx, server)
	if err != nil {
		return err
	}
	s, err := a.connectTo(server)
	if err != nil {
		return err
	}
	if f.template != "" {
		if err := a.ensureTemplate(ctx, s, f.template); err != nil {
			return err
		}
	}
	templates, err := s.templates.Templates(ctx)
	if err == nil && len(templates) == 0 {
		if got, offerErr := a.offerTemplate(ctx, s, bothy.DefaultTemplate); offerErr != nil {
			a.warn("%v", offerErr) // the server runs
		} else if got {
			templates, err = s.templates.Templates(ctx)
		}
	}
	if err != nil {
		return err
	}
	return a.printUp(&upResult{
		URL: a.url, PID: server.PID, AlreadyRunning: already,
		Credentials: path, Log: server.log(), Templates: templateNames(templates),
	})
}

// ensureServer returns the server of this home, and starts it if necessary.
func (a *app) ensureServer(ctx context.Context, f upFlags, serveArgs []string) (server *serverFile, already bool, err error) {
	if server, err = runningServer(); err != nil {
		return nil, false, err
	}
	if server != nil {
		return server, true, a.waitHealthy(ctx, server, nil)
	}
	listen, done, err := checkListen(f.listen)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if err := a.requirements(ctx, listen, f.install); err != nil {
		return nil, false, err
	}
	server, err = a.startServer(ctx, listen, serveArgs)
	return server, false, err
}

// requirements checks what must be true before the server can start.
func (a *app) requirements(ctx context.Context, listen string, install bool) error {
	if os.Geteuid() != 0 {
		return bothy.Errorf(bothy.CodePermission, "only root can give sandboxes their namespaces and limits").
			WithHint("Run: sudo bothy up")
	}
	host := doctor.NewHost(home(), templatesHome(), listen)
	if missing := host.MissingPackages(); install && len(missing) > 0 {
		if err := a.install(ctx, missing); err != nil {
			return err
		}
	}
	report := doctor.Run(ctx, host.StartChecks(), func(r doctor.Result) {
		if r.Status == doctor.Fail {
			a.printResult(a.stderr, r)
		}
	})
	if !report.OK {
		return bothy.Errorf(bothy.CodeUnsupported, "this host is not ready for the server").
			WithHint("Follow the advice above, then run it again; `bothy doctor` shows every check.")
	}
	return nil
}

// ensureTemplate builds a template unless it exists.
func (a *app) ensureTemplate(ctx context.Context, s *session, name string) error {
	_, err := s.templates.Template(ctx, name)
	if bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
		return err
	}
	_, err = a.buildTemplate(ctx, s, bothy.TemplateBuild{Name: name})
	return err
}

func (a *app) printUp(r *upResult) error {
	if a.json {
		return a.printJSON(r)
	}
	state := "started"
	if r.AlreadyRunning {
		state = "already running"
	}
	fields(a.stdout,
		"server", fmt.Sprintf("%s (pid %d)", state, r.PID),
		"url", r.URL,
		"key", "in "+r.Credentials,
		"log", r.Log,
		"templates", strings.Join(r.Templates, ", "),
	)
	if len(r.Templates) == 0 {
		fmt.Fprintf(a.stdout, "\nThere is no template yet. Take one from a release's file, in seconds, or build one, in a minute or two:\n"+
			"  bothy template pull FILE\n  bothy template build %s\n", bothy.DefaultTemplate)
	}
	return nil
}
