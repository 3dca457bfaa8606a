package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newTemplateCreate(a *app) *cobra.Command {
	req, from := bothy.TemplateCapture{}, ""
	cmd := &cobra.Command{
		Use:   "create NAME --from SANDBOX",
		Short: "Make a template from a sandbox",
		Long: `Make a template from a running or paused sandbox: new sandboxes start from its
files. With --memory they start with its running processes, too, with its size
and engine. The sandbox stays as it is.

NAME may have a tag, as in team/app:v3. A template belongs to the key's project;
templates of the operator's project are for all projects.`,
		Example: `  bothy template create --from web team/app:v3
  bothy template create --from web --memory app-running`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&from, "from", "", "`sandbox` to make it from")
	cmd.Flags().BoolVar(&req.Memory, "memory", false, "keep the running processes, too")
	cmd.Flags().StringVar(&req.Description, "description", "", "what the template is for")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) (err error) {
		if from == "" {
			return usageError(cmd, errors.New("--from is needed: the sandbox to make it from"))
		}
		if from, err = s.sandboxNamed(ctx, from); err != nil {
			return err
		}
		req.Name = args[0]
		t, err := s.capturer.CreateTemplate(ctx, from, req)
		if err != nil {
			return err
		}
		return a.show(t, func(w io.Writer) { printTemplate(w, t) })
	})
	return cmd
}
