package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli.md again")

const cliPage = "../docs/cli.md"

const cliPageTop = `# The command line

One binary, ` + "`bothy`" + `, is the server and its client. This page is generated
from the commands' help.

Every command exits with 0 on success, 1 on failure, 2 on wrong usage, 3 when
something was not found, and 4 when it was refused: because a key is missing or
lacks the right, or because of a limit of the plan. ` + "`run`, `exec`, `shell exec` and `sh`" + ` exit
with the code of what they ran, and with 127 if there is no such command.

` + "`bothy completion bash`" + ` (or zsh, fish, powershell) prints a script for your shell, with
which the Tab key completes commands, ids, templates and modes.

Wherever a command takes the id of a sandbox, a snapshot or a key, it takes a name too; if
several have the name, an error lists their ids. Times are given as in 90s, 10m, 2h or 7d, and
sizes as in 512m or 2g; a bare number is seconds, or MiB. On a terminal tables have colours and
are cut to its width; in a pipe they are whole.

The server's URL and the key come from ` + "`--url`, `BOTHY_URL` and `BOTHY_API_KEY`" + `,
from the profile of ` + "`--profile` or `BOTHY_PROFILE`" + `,
or else from ` + "`~/.config/bothy/credentials.json`, which `bothy up` and `bothy serve`" + ` write
(below ` + "`$XDG_CONFIG_HOME`" + ` if that is set).
Errors go to standard error as ` + "`bothy: what is wrong`" + ` and, usually, a line
` + "`  hint: what to do`" + `. With ` + "`--json`" + ` a command prints exactly what the API
returned, even on failure.
`

// TestCommandPage compares docs/cli.md with the commands. After a change of the commands run:
// go test ./cli -run TestCommandPage -update
func TestCommandPage(t *testing.T) {
	t.Setenv("BOTHY_LISTEN", "")
	page := commandPage(newRoot(newApp(os.Stdin, io.Discard, io.Discard)))
	if *update {
		if err := os.WriteFile(cliPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(cliPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, written) {
		t.Errorf("docs/cli.md is not what the commands say; run: go test ./cli -run TestCommandPage -update")
	}
}

// TestEveryCommandExplainsItself checks that each command has a summary for lists, and a use line.
func TestEveryCommandExplainsItself(t *testing.T) {
	walk(newRoot(newApp(os.Stdin, io.Discard, io.Discard)), func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 80 {
			t.Errorf("%s: the summary is %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Args == nil {
			t.Errorf("%s: its arguments are not checked", cmd.CommandPath())
		}
	})
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		if !child.Hidden && child.Name() != "help" {
			walk(child, visit)
		}
	}
}

func commandPage(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(cliPageTop)
	create, _, err := root.Find([]string{"create"})
	if err != nil {
		panic(err)
	}
	walk(root, func(cmd *cobra.Command) {
		if cmd != root {
			commandSection(&b, cmd, create)
		}
	})
	fmt.Fprintf(&b, "\n## Flags of every command\n\n```\n%s```\n", root.PersistentFlags().FlagUsages())
	return b.Bytes()
}

// manyShared is how many flags a command has in common with create before they are only named.
const manyShared = 4

// ownFlags are the usages of a command's flags, without those of create, and these flags' names.
func ownFlags(cmd, create *cobra.Command) (usages string, shared []string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		same := create.LocalNonPersistentFlags().Lookup(f.Name)
		if cmd != create && !f.Hidden && same != nil && same.Usage == f.Usage && same.Shorthand == f.Shorthand && same.DefValue == f.DefValue {
			shared = append(shared, "`--"+f.Name+"`")
		} else {
			own.AddFlag(f)
		}
	})
	if len(shared) < manyShared {
		return cmd.LocalNonPersistentFlags().FlagUsages(), nil
	}
	return own.FlagUsages(), shared
}

func commandSection(b *bytes.Buffer, cmd, create *cobra.Command) {
	level := strings.Repeat("#", min(2+strings.Count(cmd.CommandPath(), " ")-1, 4))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n%s %s\n\n%s\n", level, cmd.CommandPath(), text)
	if cmd.HasSubCommands() && !cmd.HasLocalFlags() {
		return
	}
	cmd.InitDefaultHelpFlag()
	_ = cmd.LocalFlags().MarkHidden("help")
	fmt.Fprintf(b, "\n```\n%s\n", cmd.UseLine())
	flags, shared := ownFlags(cmd, create)
	if flags != "" {
		fmt.Fprintf(b, "\n%s", flags)
	}
	b.WriteString("```\n")
	if len(shared) > 0 {
		fmt.Fprintf(b, "\nAs for [bothy create](#bothy-create): %s.\n", strings.Join(shared, ", "))
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", unindent(cmd.Example))
	}
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
