package cli

import (
	"errors"
	"fmt"
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

// valueKinds describes the values of flags, by their types.
var valueKinds = map[string]string{
	"int": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a time such as 90s, 10m or 24h",
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
