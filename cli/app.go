package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is what all commands share: the streams, the global flags, and the connection to the
// server.
type app struct {
	version        string // of this program
	commit         string // of its source
	stdin          *os.File
	stdout, stderr io.Writer

	url     string
	profile string
	key     string
	json    bool
	noColor bool

	// last records the body of the last answer, for --json.
	last recorder
}

func newApp(stdin *os.File, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr}
}

// show prints what the API returned if --json is set, and calls human
// otherwise. value is the result, for answers that are not a single JSON
// document.
func (a *app) show(value any, human func(w io.Writer)) error {
	if !a.json {
		human(a.screen())
		return nil
	}
	if body := a.last.body(); body != nil {
		return writeLine(a.stdout, body)
	}
	return a.printJSON(value)
}

// printJSON prints one value as a line of JSON.
func (a *app) printJSON(value any) error {
	return json.NewEncoder(a.stdout).Encode(value)
}

func writeLine(w io.Writer, body []byte) error {
	_, err := w.Write(append(bytes.TrimRight(body, "\n"), '\n'))
	return err
}

// isTerminal reports whether w is a terminal that a person looks at.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// color reports whether to use colours on stdout.
func (a *app) color() bool {
	return !a.noColor && os.Getenv("NO_COLOR") == "" && isTerminal(a.stdout)
}

// group makes a command that only contains others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}
