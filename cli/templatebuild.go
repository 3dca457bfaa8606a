package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newTemplateBuild(a *app) *cobra.Command {
	req := bothy.TemplateBuild{}
	var docker dockerFlags
	cmd := &cobra.Command{
		Use:   "build NAME [CONTEXT]",
		Short: "Build a template from a Dockerfile, or a built-in one",
		Long: `Build a template from a Dockerfile, with the files of the folder CONTEXT. Each
RUN is executed in a sandbox, under the network policy that the flags choose.
The result of each step is cached. The build continues when this command is
interrupted: bothy template logs shows it again.

Without CONTEXT and -f, NAME is a built-in template: python-3.12,
python-3.12-bare, node-22, ubuntu-24.04, debian-12 or browser.`,
		Example: `  bothy template build tools .
  bothy template build tools -f docker/Dockerfile . --build-arg VERSION=3
  bothy template build node-22 --force`,
		Args: usage(cobra.RangeArgs(1, 2)),
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "build a built-in template again even if it exists")
	docker.add(cmd.Flags())
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if len(args) == 2 || docker.file != "" {
			return a.dockerBuild(ctx, s, &docker, args[0], strings.Join(args[1:], ""))
		}
		if args[0] == "browser" {
			docker.browser()
			return a.dockerBuild(ctx, s, &docker, args[0], "")
		}
		req.Name = args[0]
		return a.build(ctx, s, req)
	})
	return cmd
}

func newTemplateImport(a *app) *cobra.Command {
	req := bothy.TemplateBuild{}
	cmd := &cobra.Command{
		Use:   "import IMAGE NAME",
		Short: "Make a template from an OCI image",
		Long: `Make a template from an OCI image: a reference in a registry, an OCI layout
folder, or a tar written by docker save. Folders and tars are read by the
server, so they must be on its host.`,
		Example: `  bothy template import registry.example.com/team/tools:3 tools
  bothy template import ./image.tar tools`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "import again even if the template exists")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		req.Image, req.Name = imagePath(args[0]), args[1]
		return a.build(ctx, s, req)
	})
	return cmd
}

// imagePath makes the path of a file on this host absolute, since the server works in another
// folder.
func imagePath(image string) string {
	if !strings.HasPrefix(image, ".") && !filepath.IsAbs(image) {
		return image
	}
	if abs, err := filepath.Abs(image); err == nil {
		return abs
	}
	return image
}

// build makes a template and shows it.
func (a *app) build(ctx context.Context, s *session, req bothy.TemplateBuild) error {
	t, err := a.buildTemplate(ctx, s, req)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(t)
	}
	printTemplate(a.stdout, t)
	return nil
}

// buildTemplate makes a template, showing its progress.
func (a *app) buildTemplate(ctx context.Context, s *session, req bothy.TemplateBuild) (*bothy.Template, error) {
	bar := newProgress(a.stderr)
	t, err := s.templates.BuildTemplate(ctx, req, func(e bothy.BuildEvent) {
		if e.Error == "" && e.Template == nil {
			bar.step(e.Step, e.Message, e.Percent)
		}
	})
	bar.done()
	return t, err
}

// memoryOf describes which processes a template keeps.
func memoryOf(t *bothy.Template) string {
	if t.Memory == nil {
		return ""
	}
	return fmt.Sprintf("%s, of processes in %d MB on %s", size(t.Memory.SizeBytes), t.Memory.MemoryMB, t.Memory.Engine)
}

func printTemplate(w io.Writer, t *bothy.Template) {
	fields(w,
		"name", t.Ref(),
		"owner", cmp.Or(t.Project, "all projects"),
		"description", t.Description,
		"digest", t.Digest,
		"size", size(t.SizeBytes),
		"created", stamp(&t.CreatedAt),
		"source", t.Source,
		"languages", strings.Join(t.Languages, " "),
		"cwd", t.Cwd,
		"env", pairs(t.Env),
		"packages", pairs(t.Packages),
		"memory", memoryOf(t),
	)
}
