package cli

import (
	"bytes"
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

func newTemplate(a *app) *cobra.Command {
	return group("template", "List, build and remove templates",
		newTemplateList(a), newTemplateGet(a), newTemplateBuild(a), newTemplateBuilds(a), newTemplateLogs(a), newTemplateCancel(a), newTemplateImport(a), newTemplateCreate(a), newTemplateTag(a), newTemplatePush(a), newTemplateExport(a), newTemplatePull(a), newTemplateSBOM(a), newTemplateProvenance(a), newTemplateRemove(a))
}

func newTemplateList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List templates",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		list, err := s.templates.Templates(ctx)
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) { printTemplates(w, list) })
	})
	return cmd
}

func printTemplates(w io.Writer, list []*bothy.Template) {
	rows := make([][]string, len(list))
	for i, t := range list {
		bytes := t.SizeBytes
		if t.Memory != nil {
			bytes += t.Memory.SizeBytes
		}
		rows[i] = []string{t.Ref(), cmp.Or(t.Project, "all"), size(bytes), age(t.CreatedAt), orDash(t.Description)}
	}
	table(w, []string{"NAME", "OWNER", "SIZE", "AGE", "DESCRIPTION"}, rows)
}

func newTemplateGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show one template",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		t, err := s.templates.Template(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(t, func(w io.Writer) { printTemplate(w, t) })
	})
	return cmd
}

func newTemplateTag(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag NAME TAG…",
		Short: "Give a template more tags",
		Long: `Give a template of the key's project more tags: NAME, NAME:TAG or NAME@DIGEST
selects the image. A tag moves from the image that had it before; sandboxes
started from that image stay as they are.`,
		Example: `  bothy template tag team/app:v3 stable latest`,
		Args:    usage(cobra.MinimumNArgs(2)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := s.templates.TagTemplate(ctx, args[0], args[1:])
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) { printTemplates(w, list) })
	})
	return cmd
}

func newTemplatePush(a *app) *cobra.Command {
	var logins []string
	cmd := &cobra.Command{
		Use:   "push NAME REFERENCE",
		Short: "Push a template to a registry, as an image",
		Long: `Push a template to a registry, as a single-layer image that any container engine
can run. The server does it, with the credentials that docker login has stored
for its user if the key is the operator's, or with --registry.`,
		Example: `  bothy template push tools registry.example.com/team/tools:v3
  bothy template push tools registry.example.com/team/tools:v3 --registry host=registry.example.com,username=me,password-env=TOKEN`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().StringArrayVar(&logins, "registry", nil, registryUsage)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		list, err := readLogins(logins)
		if err != nil {
			return err
		}
		p, err := s.templates.PushTemplate(ctx, args[0], bothy.TemplatePush{Reference: args[1], Registries: list})
		if err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) { io.WriteString(w, p.Reference+"\n") })
	})
	return cmd
}

func newTemplateSBOM(a *app) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:   "sbom NAME",
		Short: "List what is installed in a template, for scanners",
		Long: `List the packages that Debian's, Python's and Node's package managers have
installed in a template, as a software bill of materials in JSON.`,
		Example: `  bothy template sbom python-3.12 --format cyclonedx >sbom.json`,
		Args:    usage(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&format, "format", bothy.SBOMSPDX, "`format`: spdx or cyclonedx")
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if format != bothy.SBOMSPDX && format != bothy.SBOMCycloneDX {
			return usagef("Give spdx or cyclonedx.", "there is no format %q", format)
		}
		text, err := s.templates.TemplateSBOM(ctx, args[0], format)
		if err != nil {
			return err
		}
		return a.writeText(text)
	})
	return cmd
}

// writeText writes what the server has sent, with one line break at its end.
func (a *app) writeText(text []byte) error {
	_, err := a.stdout.Write(append(bytes.TrimRight(text, "\n"), '\n'))
	return err
}

func newTemplateProvenance(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provenance NAME",
		Short: "Show how a template was made, and from what",
		Long: `Show how a template was made, and from what, as an in-toto statement with SLSA
provenance in JSON. It is what the server recorded, and is not signed.`,
		Example: `  bothy template provenance tools >provenance.json`,
		Args:    usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		text, err := s.templates.TemplateProvenance(ctx, args[0])
		if err != nil {
			return err
		}
		return a.writeText(text)
	})
	return cmd
}

func newTemplateRemove(a *app) *cobra.Command {
	return newForEach(a, "rm NAME…", "Delete templates", `Delete templates: NAME with all its tags, or just NAME:TAG. A template that a
sandbox or a snapshot still needs is not deleted.`, func(ctx context.Context, s *session, name string) error {
		return s.templates.RemoveTemplate(ctx, name)
	})
}

func templateNames(list []*bothy.Template) []string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return names
}
