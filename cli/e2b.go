package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
)

func newE2B(a *app) *cobra.Command {
	return group("e2b", "Use programs written for E2B", newE2BEnv(a))
}

// e2bVariables are the variables that E2B's SDKs read.
type e2bVariables struct {
	APIKey     string `json:"E2B_API_KEY"`
	APIURL     string `json:"E2B_API_URL,omitempty"`
	SandboxURL string `json:"E2B_SANDBOX_URL,omitempty"`
	Domain     string `json:"E2B_DOMAIN,omitempty"`
}

func newE2BEnv(a *app) *cobra.Command {
	var newKey bool
	var domain string
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that make E2B's SDKs use this server",
		Long: `Print the environment variables that make E2B's SDKs, and programs built on
them, use this server, as shell commands.

The key is the one that bothy itself uses, in E2B's format: beginning with e2b_.
--new-key creates another, which may use sandboxes and read templates and no
more, and which lasts until it is removed with bothy token rm.`,
		Example: `  eval "$(bothy e2b env)"
  eval "$(bothy e2b env --new-key)"
  bothy e2b env --domain boxes.example.org`,
		Args: usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&newKey, "new-key", false, "make a key for it")
	cmd.Flags().StringVar(&domain, "domain", "", "the server's link_domain, below which ports have `name`s with TLS")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		c, err := a.credentials()
		if err != nil {
			return err
		}
		v := e2bVariables{APIKey: strings.Replace(c.APIKey, access.KeyPrefix, access.E2BKeyPrefix, 1), APIURL: c.URL, SandboxURL: c.URL}
		if domain != "" {
			v.APIURL, v.SandboxURL, v.Domain = "", "", domain
		}
		if newKey {
			token, err := s.tokens.CreateToken(ctx, bothy.TokenCreate{Name: "bothy e2b env", E2B: true})
			if err != nil {
				return err
			}
			v.APIKey = token.Key
		}
		return a.show(v, func(w io.Writer) { v.print(w) })
	})
	return cmd
}

func (v e2bVariables) print(w io.Writer) {
	for _, x := range [][2]string{
		{"E2B_API_KEY", v.APIKey}, {"E2B_API_URL", v.APIURL}, {"E2B_SANDBOX_URL", v.SandboxURL}, {"E2B_DOMAIN", v.Domain},
	} {
		if x[1] != "" {
			fmt.Fprintf(w, "export %s='%s'\n", x[0], x[1])
		}
	}
}
