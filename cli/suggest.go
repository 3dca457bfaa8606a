package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// onlyCommands refuses a word that is not a command of cmd, and names those that it may have
// meant.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("`%s --help` lists the commands.", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		for i, name := range near {
			near[i] = fmt.Sprintf("`%s %s`", cmd.CommandPath(), name)
		}
		hint = "Did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef(hint, "unknown command %q for %q", args[0], cmd.CommandPath())
}

// format is --json in kubectl's and docker's words.
type format bool

func (f *format) Set(text string) error {
	if text != "json" && text != "table" {
		return fmt.Errorf("it is json or table")
	}
	*f = text == "json"
	return nil
}

func (f *format) String() string { return "" }

func (f *format) Type() string { return "format" }

// dockerWords writes -it of run, whose -t is the template's, as --tty, up to the first word of the command.
func dockerWords(root *cobra.Command, args []string) []string {
	args = slices.Clone(args)
	cmd := root
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--" || !strings.HasPrefix(arg, "-") && cmd != root:
			return args
		case !strings.HasPrefix(arg, "-"):
			if cmd, _, _ = root.Find([]string{arg}); cmd.Name() != "run" {
				return args
			}
		case cmd != root && (arg == "-it" || arg == "-ti"):
			args[i] = "--tty"
		case takesNext(cmd, arg):
			i++
		}
	}
	return args
}

// takesNext reports whether the value of a flag is the next word.
func takesNext(cmd *cobra.Command, arg string) bool {
	var flag *pflag.Flag
	if name, long := strings.CutPrefix(arg, "--"); long {
		flag = cmd.Flag(name)
	} else if len(arg) == 2 {
		if flag = cmd.Flags().ShorthandLookup(arg[1:]); flag == nil {
			flag = cmd.Root().PersistentFlags().ShorthandLookup(arg[1:])
		}
	}
	return flag != nil && flag.NoOptDefVal == ""
}

// valueKinds describes the values of flags, by their types.
var valueKinds = map[string]string{
	"int": "a whole number", "float64": "a number", "bool": "true or false", "time": "a time such as 90s, 10m, 24h or 7d", "interval": "a time in whole seconds, such as 90s, 10m, 24h or 7d", "size": "a size such as 512m or 2g", "format": "json or table",
}

// flagDetail explains what is wrong with a flag. The library's own message names Go functions.
func flagDetail(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	kind, known := valueKinds[invalid.GetFlag().Value.Type()]
	if !known {
		return err.Error()
	}
	return fmt.Sprintf("--%s takes %s, not %q", invalid.GetFlag().Name, kind, invalid.GetValue())
}
