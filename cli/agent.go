package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/coding"
)

func newAgent(a *app) *cobra.Command {
	cmd := group("agent", "Have coding agents do tasks in sandboxes (managed agents: bothy agents)", newAgentRun(a), newAgentDiff(a), newAgentList(a))
	cmd.Long = `Have a coding agent do a task in its own sandbox. Its credential is taken from
this program's environment and inserted by the gateway: it is never in the
sandbox. bothy acp runs the same agents for an editor. Environments of Claude
Managed Agents are attached by bothy agents.`
	return cmd
}

func newAgentList(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the agents that Bothy knows, and what they need",
		Args:    usage(cobra.NoArgs),
	}
	addAgents(cmd, &file)
	cmd.RunE = func(*cobra.Command, []string) error {
		all, err := coding.Agents(file)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(all)
		}
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			agent := all[name]
			rows = append(rows, []string{name, agent.Template, secretsOf(agent), yesNo(len(agent.ACP) > 0), yesNo(len(agent.Run) > 0)})
		}
		table(a.screen(), []string{"NAME", "TEMPLATE", "CREDENTIAL", "ACP", "TASKS"}, rows)
		return nil
	}
	return cmd
}

func addAgents(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "agents", "", "`file` with further agents, in the form of coding/agents.yaml")
}

func secretsOf(agent *coding.Agent) string {
	names := make([]string, len(agent.Secrets))
	for i, s := range agent.Secrets {
		names[i] = s.Name
	}
	return orDash(strings.Join(names, " or "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// agentRunFlags are those of bothy agent run.
type agentRunFlags struct {
	create createFlags
	agents string
	task   string
	repo   string
	branch string
	fork   string
	resume string
	out    string
	remove bool
}

func newAgentRun(a *app) *cobra.Command {
	var f agentRunFlags
	cmd := &cobra.Command{
		Use:   "run AGENT --task TEXT [flags]",
		Short: "Have a coding agent do a task; exits with its code",
		Long: `Have a coding agent do a task in a sandbox, and show its output. When it is
done, or waits for your answer, the sandbox is paused and its id printed:
--continue gives it another task, --fork does so in a copy, and bothy agent diff
shows the changes.

The repository is a URL, which is cloned inside, or a folder on this host, which
is copied in without what .gitignore names. The task - is read from standard
input.`,
		Example: `  bothy agent run claude-code --repo . --task 'Make the tests pass' --out changes.patch
  bothy agent run claude-code --repo https://github.com/golang/example --task 'Explain hello'
  bothy agent run claude-code --continue sbx4f2a --task 'Now with a test'
  bothy agent run claude-code --fork sbx4f2a --task 'Try it another way'`,
		Args: usage(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "`what` to do, or - to read it from standard input")
	flags.StringVar(&f.repo, "repo", "", "`URL` or folder to work on")
	flags.StringVar(&f.branch, "branch", "", "`branch` of the URL to clone (default its own)")
	flags.StringVar(&f.resume, "continue", "", "continue in this `sandbox` of an earlier run")
	flags.StringVar(&f.fork, "fork", "", "continue in a copy of this `sandbox` of an earlier run")
	flags.StringVar(&f.out, "out", "", "write what was changed to this `file`, as a patch")
	flags.BoolVar(&f.remove, "rm", false, "end the sandbox afterwards")
	addAgents(cmd, &f.agents)
	f.create.add(flags)
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		agent, err := findAgent(f.agents, args[0])
		if err != nil {
			return err
		}
		task, err := a.task(f.task)
		if err != nil {
			return err
		}
		command, err := agent.Task(task, f.resume+f.fork != "")
		if err != nil {
			return err
		}
		r := &agentRun{app: a, s: s, f: &f, agent: agent, command: command}
		return r.run(ctx, cmd)
	})
	return cmd
}

func (f *agentRunFlags) check(cmd *cobra.Command) error {
	switch {
	case f.task == "":
		return usagef("Say it as in --task 'Make the tests pass'.", "there is no task")
	case f.fork != "" && f.resume != "":
		return usagef("Use one of the two.", "--fork and --continue are different things")
	case f.fork+f.resume != "" && f.repo != "":
		return usagef("Leave --repo out.", "the sandbox of an earlier run has its repository already")
	case f.branch != "" && !isURL(f.repo):
		return usagef("Check the branch out before.", "--branch is for a repository that is cloned by its URL")
	}
	if f.fork+f.resume != "" {
		for _, name := range []string{"template", "snapshot", "memory", "disk", "cpu", "size", "engine", "secret", "env", "checkpoint", "on-host-loss", "host-label"} {
			if cmd.Flags().Changed(name) {
				return usagef("Leave it out.", "--%s is for a new sandbox, and not for one of an earlier run", name)
			}
		}
	}
	return nil
}

func isURL(repo string) bool { return strings.Contains(repo, "://") }

// task is the text of the task.
func (a *app) task(text string) (string, error) {
	if text != "-" {
		return text, nil
	}
	b, err := io.ReadAll(io.LimitReader(a.stdin, maxWholeInput))
	if err == nil && strings.TrimSpace(string(b)) == "" {
		err = usagef("Write it there, or say it with --task.", "there is no task on standard input")
	}
	return string(b), err
}

func newAgentDiff(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff SANDBOX",
		Short: "Show what an agent has changed in its repository, as a patch",
		Long: `Show what an agent has changed since its repository was cloned or copied in,
committed or not, as a patch for git apply. A paused sandbox is resumed for this
and paused again.`,
		Example: `  bothy agent diff sbx4f2a
  bothy agent diff sbx4f2a | git apply`,
		Args: usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) (err error) {
		sandbox, err := s.sandboxes.Get(ctx, args[0])
		if err != nil {
			return err
		}
		dir := sandbox.Metadata[agentFolder]
		if dir == "" {
			return bothy.Errorf(bothy.CodeNotFound, "the sandbox %s is not of an agent that works on a repository", args[0]).
				WithHint("`bothy agent run` with --repo makes one; `bothy cp` fetches files of any sandbox.")
		}
		if sandbox.State == bothy.StatePaused {
			if _, err := s.snapshots.Resume(ctx, sandbox.ID, bothy.ResumeOptions{}); err != nil {
				return err
			}
			defer func() {
				if pauseErr := pauseAgain(s, sandbox.ID); err == nil {
					err = pauseErr
				}
			}()
		}
		patch, err := agentPatch(ctx, s, sandbox.ID, dir)
		if err != nil {
			return err
		}
		_, err = io.WriteString(a.stdout, patch)
		return err
	})
	return cmd
}

// pauseAgain pauses a sandbox although its command may have been interrupted.
func pauseAgain(s *session, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.snapshots.Pause(ctx, id, bothy.PauseOptions{})
	return err
}
