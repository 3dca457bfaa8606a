// Package cli is the command line. Each command is one short file: its help, its flags, one call
// of the client, and what it prints. Only cmd/bothy uses it.
package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Main executes the command line of this process, and returns its exit code. version is
// the program's version, commit that of its source, if it is known.
func Main(version, commit string) int {
	if run := helper(); run != nil {
		return run()
	}
	args := os.Args[1:]
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if len(args) == 0 || args[0] != "serve" { // where it has another meaning
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	// A second Ctrl-C ends this process whatever it does.
	context.AfterFunc(ctx, stop)
	// With this, a reader that goes away is an error of Write, and no sandbox is left behind.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	a.version, a.commit = version, commit
	root := newRoot(a)
	root.SetArgs(dockerWords(root, args))
	return a.finish(root.ExecuteContext(ctx))
}

func newRoot(a *app) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "bothy",
		Short: "Disposable, isolated Linux machines for AI agents",
		Long: `Bothy gives each AI agent its own disposable, isolated Linux machine.

Start with:
  bothy up                            start the server on this host
  bothy run -- python3 -c 'print(1)'  run one command in a new sandbox`,
		Version:       a.version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "`URL` of the server (default $BOTHY_URL, then the credentials file)")
	flags.StringVar(&a.profile, "profile", "", "`name` of another server's credentials (default $BOTHY_PROFILE); see bothy profile")
	flags.BoolVar(&a.json, "json", false, "print exactly what the API returned")
	flags.VarP((*format)(&a.json), "output", "o", "`format` of what is printed: json or table")
	flags.BoolVar(&a.noColor, "no-color", false, "print without colours (also $NO_COLOR)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	root.SetHelpCommand(newHelp(root))
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	for _, r := range rooms() {
		root.AddGroup(&cobra.Group{ID: r.title, Title: r.title + ":"})
		for _, f := range r.of {
			cmd := f(a)
			cmd.GroupID = r.title
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("Server")
	root.SetCompletionCommandGroupID("Server")
	a.addCompletion(root)
	return root
}

// newHelp replaces cobra's own, which accepts any word as a topic.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show how to use a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				if err := onlyCommands(found, rest); len(rest) == 1 && err != nil {
					return err
				}
				return usagef("`bothy --help` lists the commands.", "there is no command %q", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// room is a group of commands in the help, with its commands in the order in which a person needs them.
type room struct {
	title string
	of    []func(*app) *cobra.Command
}

func rooms() []room {
	return []room{
		{"Sandboxes", []func(*app) *cobra.Command{newRun, newCreate, newList, newGet, newUpdate, newRemove, newPause, newResume, newRestart, newSnapshot, newSnapshots, newFork, newRollback}},
		{"Files and code", []func(*app) *cobra.Command{newExec, newShell, newShells, newWait, newCode, newContext, newCopy, newFiles, newProcesses, newProcess, newLogs, newMetrics, newTop}},
		{"Templates", []func(*app) *cobra.Command{newTemplate}},
		{"Network", []func(*app) *cobra.Command{newNetwork, newSSH, newSSHConfig, newForward, newLink, newOpen}},
		{"Agents", []func(*app) *cobra.Command{newAgent, newAgents, newACP, newMCP, newE2B}},
		{"Server", []func(*app) *cobra.Command{newUp, newDown, newConsole, newDoctor, newServe, newMigrate, newHost, newMove, newToken, newProject, newUsage, newBudget, newAudit, newEvents, newWebhook, newLimits, newProfile, newBench, newVersion, newManual}},
	}
}
