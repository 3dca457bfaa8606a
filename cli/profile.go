package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

func newProfile(a *app) *cobra.Command {
	cmd := group("profile", "Keep the credentials of several servers", newProfileAdd(a), newProfileList(a), newProfileRemove(a))
	cmd.Long = `Keep the credentials of several servers. --profile NAME picks one for a command,
and $BOTHY_PROFILE for all commands and the SDKs. Without either, the server is
that of "bothy up".`
	return cmd
}

func newProfileAdd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a server, whose key is read from standard input",
		Long: `Add a server, or replace it. Its key is read from standard input, and tried. Keys
are kept in the folder profiles beside the credentials file, readable only by you.`,
		Example: `  bothy profile add work https://bothy.example.com
  bothy --profile work ls`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := client.ProfilePath(args[0]); err != nil {
				return err
			}
			key, err := a.readKey()
			if err != nil {
				return err
			}
			c := client.Credentials{URL: strings.TrimRight(args[1], "/"), APIKey: key}
			_, err = newSession(client.New(c.URL, c.APIKey)).sandboxes.List(cmd.Context(), bothy.SandboxFilter{Limit: 1})
			if err != nil && bothy.ErrorCode(err) != bothy.CodeForbidden { // another scope
				return err
			}
			return client.SaveProfile(args[0], c)
		},
	}
}

// readKey reads a line without showing it.
func (a *app) readKey() (key string, err error) {
	if fd := int(a.stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprint(a.stderr, "API key: ")
		var b []byte
		b, err = term.ReadPassword(fd)
		fmt.Fprintln(a.stderr)
		key = string(b)
	} else {
		key, err = bufio.NewReader(io.LimitReader(a.stdin, 4096)).ReadString('\n')
	}
	if key = strings.TrimSpace(key); key != "" {
		return key, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return "", usagef("Pipe it in, or type it at the prompt.", "no API key was given")
}

func newProfileList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List profiles", Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			names, err := profiles()
			if err != nil {
				return err
			}
			type profile struct {
				Name string `json:"name"`
				URL  string `json:"url"`
			}
			items, rows := []profile{}, [][]string{}
			for _, name := range names {
				c, err := client.LoadProfile(name)
				if err != nil {
					return err
				}
				items, rows = append(items, profile{name, c.URL}), append(rows, []string{name, c.URL})
			}
			return a.show(map[string]any{"items": items}, func(w io.Writer) { table(w, []string{"NAME", "URL"}, rows) })
		},
	}
}

// profiles are the names of those that are kept, sorted.
func profiles() ([]string, error) {
	path, err := client.ProfilePath("x")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if _, err := client.ProfilePath(name); err == nil {
				names = append(names, name)
			}
		}
	}
	return names, err
}

func newProfileRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget a profile; its key stays valid", Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := client.ProfilePath(args[0])
			if err != nil {
				return err
			}
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				_, err = client.LoadProfile(args[0]) // says that it is not there
			}
			return err
		},
	}
}
