package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy/client"
)

func newConsole(a *app) *cobra.Command {
	var noOpen bool
	cmd := &cobra.Command{
		Use:        "console",
		SuggestFor: []string{"dashboard", "ui"},
		Short:      "Open the console in a browser",
		Long: `Print a link to the server's console, and open it in a browser if there is a
display. The link logs in with the rights of the API key in use. It works once,
within a minute, and does not contain the key.`,
		Example: `  bothy console
  bothy console --no-open`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the link")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.credentials()
		if err != nil {
			return err
		}
		link, err := consoleLink(cmd.Context(), client.New(c.URL, c.APIKey, client.WithUserAgent("bothy-cli/"+a.version)))
		if err != nil {
			return err
		}
		if !noOpen {
			browse(link.URL)
		}
		return a.show(link, func(w io.Writer) { fmt.Fprintln(w, link.URL) })
	}
	return cmd
}

type consoleAddress struct {
	URL       string `json:"url"`
	ExpiresAt string `json:"expires_at"`
}

func consoleLink(ctx context.Context, c *client.Client) (consoleAddress, error) {
	answer, err := c.Do(ctx, "POST", "/console/link", nil)
	if err != nil {
		return consoleAddress{}, err
	}
	var link struct {
		Path      string `json:"path"`
		ExpiresAt string `json:"expires_at"`
	}
	err = json.Unmarshal(answer, &link)
	return consoleAddress{URL: strings.TrimRight(c.URL(), "/") + link.Path, ExpiresAt: link.ExpiresAt}, err
}
