package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
)

// environmentKey is the variable that holds the key of an environment.
const environmentKey = "ANTHROPIC_ENVIRONMENT_KEY"

func newAgents(a *app) *cobra.Command {
	cmd := group("agents", "Have the server work for Claude Managed Agents (coding agents: bothy agent)", newAgentsAttach(a), newAgentsList(a), newAgentsGet(a), newAgentsDetach(a))
	cmd.Long = `Have the server work for the self-hosted environments of Claude Managed Agents, whose
loop runs elsewhere. A coding agent that runs in a sandbox itself is started by
bothy agent.`
	return cmd
}

func newAgentsAttach(a *app) *cobra.Command {
	var req bothy.AgentAttach
	var flags createFlags
	var tools []string
	var keyFile string
	cmd := &cobra.Command{
		Use:   "attach --environment ENVIRONMENT",
		Short: "Work for an environment of managed agents",
		Long: `Have the server work for a self-hosted environment of Claude Managed Agents:
each session gets a sandbox created from these flags, in which its tools run.

The environment key is read from $` + environmentKey + `, or from a file. The
server keeps it encrypted, and no sandbox sees it. Attaching an environment
again replaces the key and flags, and its sessions continue.

A tool of the agent's own is a command in the sandbox: it gets the input as JSON on
its standard input, and what it prints is the result.`,
		Example: `  bothy agents attach --environment env_01ABC --key-file env.key
  bothy agents attach --environment env_01ABC -t node-22 --memory 1024 --budget 2 \
    --tool lookup='python /workspace/lookup.py' < env.key --key-file -`,
		Args: usage(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&req.Environment, "environment", "", "`id` of the environment")
	f.StringVar(&keyFile, "key-file", "", "`file` with the environment key, - for standard input (default $"+environmentKey+")")
	f.StringVar(&req.URL, "url", "", "`address` of the service (default "+bothy.AgentsURL+")")
	f.StringArrayVar(&tools, "tool", nil, "tool that runs in the sandbox, as `NAME=COMMAND` (repeatable)")
	f.IntVar(&req.MaxSessions, "max-sessions", 0, "`number` of sessions to work for at once (default 10)")
	flags.add(f)
	f.Lookup("timeout").Usage = "`seconds` until a sandbox is paused, or ends with --on-timeout terminate (default 3600)"
	f.Lookup("on-timeout").Usage = "`what` happens then: terminate or pause (default pause)"
	f.Lookup("idle").Usage = "pause the sandbox of a session that is idle for so many `seconds` (default 60)"
	for _, name := range []string{"name", "auto-resume"} { // each session has a sandbox, which wakes when it is used
		_ = f.MarkHidden(name)
	}
	_ = cmd.MarkFlagRequired("environment")
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		var err error
		if req.Key, err = a.environmentKey(keyFile); err != nil {
			return err
		}
		sandbox, err := flags.request(f)
		if err != nil {
			return err
		}
		req.Sandbox = &sandbox
		req.Tools = nil
		for _, word := range tools {
			name, command, ok := strings.Cut(word, "=")
			if !ok {
				return usagef("Write it as NAME=COMMAND.", "--tool %q has no command", word)
			}
			req.Tools = append(req.Tools, bothy.AgentTool{Name: name, Command: command})
		}
		got, err := s.agents.AttachAgents(ctx, req)
		if err != nil {
			return err
		}
		return a.show(got, func(w io.Writer) { fmt.Fprintln(w, got.ID) })
	})
	return cmd
}

// environmentKey reads the key of an environment. It is not a flag, which the list of processes
// would show.
func (a *app) environmentKey(file string) (string, error) {
	var b []byte
	var err error
	switch file {
	case "":
		key := os.Getenv(environmentKey)
		if key == "" {
			return "", usagef("Set "+environmentKey+", or give --key-file FILE.", "there is no environment key")
		}
		return key, nil
	case "-":
		b, err = io.ReadAll(io.LimitReader(a.stdin, 1<<16))
	default:
		b, err = os.ReadFile(file)
	}
	return strings.TrimSpace(string(b)), err
}

// agentsHealth describes the state in a few words.
func agentsHealth(g *bothy.AgentAttachment) string {
	if g.LastError != "" {
		return string(g.State) + ": " + g.LastError
	}
	return string(g.State)
}

func newAgentsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List attached environments and their state",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		all, err := s.agents.AgentAttachments(ctx)
		if err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			rows := make([][]string, len(all))
			for i, g := range all {
				rows[i] = []string{g.ID, g.Environment, strconv.Itoa(len(g.Sessions)), age(g.CreatedAt), agentsHealth(g)}
			}
			table(w, []string{"ID", "ENVIRONMENT", "SESSIONS", "AGE", "STATE"}, rows)
		})
	})
	return cmd
}

func newAgentsGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ATTACHMENT",
		Short: "Show an attached environment with its sessions and their sandboxes",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		g, err := s.agents.AgentAttachment(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(g, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s\n%s\n", g.ID, g.Environment, agentsHealth(g))
			if len(g.Sessions) == 0 {
				return
			}
			rows := make([][]string, len(g.Sessions))
			for i, x := range g.Sessions {
				state := "idle"
				if x.Working {
					state = "working"
				}
				rows[i] = []string{x.ID, orDash(x.SandboxID), state, orDash(x.LastError)}
			}
			table(w, []string{"SESSION", "SANDBOX", "STATE", "ERROR"}, rows)
		})
	})
	return cmd
}

func newAgentsDetach(a *app) *cobra.Command {
	return newForEach(a, "detach ATTACHMENT…", "Stop working for environments", `Stop working for environments, given by their attachments' ids or their own. The
sandboxes of their sessions are paused; bothy rm ends them.`, func(ctx context.Context, s *session, id string) error {
		return s.agents.DetachAgents(ctx, id)
	})
}
