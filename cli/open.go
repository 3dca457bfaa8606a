package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newOpen(a *app) *cobra.Command {
	var noOpen bool
	req := bothy.LinkCreate{}
	cmd := &cobra.Command{
		Use:   "open SANDBOX PORT",
		Short: "Open a port of a sandbox in a browser",
		Long: `Create a link to the HTTP server on a port of a sandbox, print it, and open it in
a browser if there is a display. The link works without a key until it expires or
is revoked; bothy link ls lists it.`,
		Example: `  bothy open sbx4f2a 8000
  bothy open web 8000 --expires 24h --no-open`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the link")
	timeVar(cmd.Flags(), &req.For, "expires", time.Hour, "how long the link can be used, a `time` as in 24h, of seven days at most")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) (err error) {
		if req.Port, err = portNumber(args[1]); err != nil {
			return err
		}
		link, err := s.links.CreateLink(ctx, args[0], req)
		if err != nil {
			return err
		}
		if !noOpen {
			browse(link.URL)
		}
		return a.show(link, func(w io.Writer) { fmt.Fprintln(w, link.URL) })
	})
	return cmd
}

// browse opens a page in a browser if there is a display. What it opens is printed all the same.
func browse(url string) {
	if os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" {
		_ = exec.Command("xdg-open", url).Start()
	}
}
