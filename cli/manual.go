package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManual writes the man pages for packages. It is hidden, since it is of use only there.
func newManual(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "manual FOLDER",
		Short:  "Write a man page for each command",
		Hidden: true,
		Args:   usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManual(args[0], cmd.Root())
		},
	}
}

func writeManual(folder string, cmd *cobra.Command) error {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
		return nil
	}
	name := filepath.Join(folder, dashed(cmd)+".1")
	if err := os.WriteFile(name, manualPage(cmd), 0o644); err != nil {
		return err
	}
	for _, child := range cmd.Commands() {
		if err := writeManual(folder, child); err != nil {
			return err
		}
	}
	return nil
}

func dashed(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manualPage is the page of a command, in the macros of man(7). It has no date, so that equal
// sources make equal packages.
func manualPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %q 1 \"\" \"Bothy\" \"Bothy\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(dashed(cmd)), roff(dashed(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if long := strings.TrimSpace(cmd.Long); long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff(long), "\n\n", "\n.PP\n"))
	}
	section := ".SH OPTIONS\n"
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		word, usage := pflag.UnquoteUsage(f)
		option := "--" + f.Name
		if f.Shorthand != "" {
			option = "-" + f.Shorthand + ", " + option
		}
		if word != "" {
			option += " " + word
		}
		fmt.Fprintf(&b, "%s.TP\n.B %s\n%s\n", section, roff(option), roff(usage))
		section = ""
	})
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, dashed(cmd.Parent())+"(1)")
	}
	for _, child := range cmd.Commands() {
		if !child.Hidden {
			also = append(also, dashed(child)+"(1)")
		}
	}
	if len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(also, ", ")))
	}
	return b.Bytes()
}

// roff quotes text: a backslash and a minus have a meaning everywhere, a dot and an apostrophe at
// the start of a line.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
