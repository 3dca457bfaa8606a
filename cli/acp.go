package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/coding"
	"github.com/bothy-dev/bothy/coding/acp"
	"github.com/bothy-dev/bothy/coding/folder"
)

// acpFlags are those of bothy acp.
type acpFlags struct {
	create  createFlags
	agent   string
	agents  string
	folder  string
	at      string
	ignored bool
	exclude []string
	keep    bool
	idle    time.Duration
}

func newACP(a *app) *cobra.Command {
	var f acpFlags
	cmd := &cobra.Command{
		Use:   "acp [flags] [-- COMMAND…]",
		Short: "Run a coding agent in a sandbox for an editor that speaks ACP",
		Long: `Speak the Agent Client Protocol on stdin and stdout, for an editor that starts
its agents as programs. The agent runs in its own sandbox. The session's folder
is copied in at the start, to the same path, and changes on either side are
copied to the other before and after each turn.

What .gitignore names stays where it is. Nothing from the sandbox is written
outside the folder, and no hooks or settings into its .git. If a file was
changed on both sides, the local one is kept, and the sandbox's is put next to
it as NAME.from-sandbox.

The agent's credential is taken from this program's environment and inserted by
the gateway: it is never in the sandbox.`,
		Example: `  bothy acp --agent claude-code
  bothy acp --agent claude-code --preset npm --preset github --keep
  bothy acp -t my-agent --secret MY_KEY@api.example.com -- my-agent --acp`,
		Args: usage(cobra.ArbitraryArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "`agent` to run, with what it needs (default claude-code, or none with a command)")
	addAgents(cmd, &f.agents)
	flags.StringVar(&f.folder, "folder", "", "the one `folder` to carry (default those that the editor opens)")
	flags.StringVar(&f.at, "at", "", "`path` of the folder in the sandbox (default the same as here)")
	flags.BoolVar(&f.ignored, "with-ignored", false, "carry what .gitignore names, too")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "leave out what matches this `pattern`, as in a .gitignore (repeatable)")
	flags.BoolVar(&f.keep, "keep", false, "pause the sandbox at the end, and take it up for the same folder the next time")
	timeVar(flags, &f.idle, "rest", 10*time.Minute, "pause the sandbox, and the agent in it, after a `time` without a message; 0 for never")
	f.create.add(flags)
	takesCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := a.acp(cmd, &f, args)
		var wrong *wrongUsage
		if err != nil && !errors.As(err, &wrong) && !errors.As(err, new(exitCode)) && !isTerminal(a.stdin) {
			detail, hint := describe(err)
			if hint != "" {
				detail += " (" + hint + ")"
			}
			acp.Refuse(a.stdin, a.stdout, detail)
		}
		return err
	}
	return cmd
}

// acp determines what to run, and runs it.
func (a *app) acp(cmd *cobra.Command, f *acpFlags, command []string) error {
	req, err := f.create.request(cmd.Flags())
	if err != nil {
		return err
	}
	if command, err = f.apply(&req, command); err != nil {
		return err
	}
	if f.folder, err = f.only(); err != nil {
		return err
	}
	s, err := a.connect()
	if err != nil {
		return err
	}
	e := &editing{app: a, s: s, f: f, command: command}
	return e.run(cmd.Context(), req)
}

// apply adds what the agent needs to the request, and returns its command.
func (f *acpFlags) apply(req *bothy.SandboxCreate, command []string) ([]string, error) {
	name := f.agent
	if name == "" && len(command) == 0 {
		name = "claude-code"
	}
	if req.TimeoutSeconds == nil {
		req.TimeoutSeconds = new(3600)
	}
	if req.OnTimeout == "" && f.keep {
		req.OnTimeout = bothy.TimeoutPause
	}
	if name == "" {
		return command, nil
	}
	agent, err := findAgent(f.agents, name)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		command = agent.ACP
	}
	if len(command) == 0 {
		return nil, usagef("Give its command after --, if it has one.", "the agent %s does not speak the Agent Client Protocol", name)
	}
	return command, agent.Apply(req, os.LookupEnv)
}

func findAgent(file, name string) (*coding.Agent, error) {
	all, err := coding.Agents(file)
	if err != nil {
		return nil, err
	}
	if agent, ok := all[name]; ok {
		return agent, nil
	}
	return nil, usagef("Known are: "+coding.Names(all)+". Describe others in a file, and name it with --agents.", "there is no agent %q", name)
}

// only returns the one folder to carry, absolute and without links, or "".
func (f *acpFlags) only() (string, error) {
	if f.folder == "" && f.at == "" {
		return "", nil
	}
	if f.at != "" && (!filepath.IsAbs(f.at) || filepath.Clean(f.at) != f.at || f.at == "/") {
		return "", usagef("Write it as in --at /workspace/project.", "--at %q is not an absolute path", f.at)
	}
	dir, err := filepath.Abs(cmp.Or(f.folder, "."))
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("cannot carry %s: %w", dir, reason(err))
	}
	return real, folder.Check(real)
}

// editing is one run of bothy acp.
type editing struct {
	*app
	s       *session
	f       *acpFlags
	command []string

	sandbox string
	process *acp.Process
	project *acp.Project
}

func (e *editing) run(ctx context.Context, req bothy.SandboxCreate) (err error) {
	begun := time.Now()
	states, err := e.start(ctx, req)
	if err != nil {
		return err
	}
	defer func() {
		if endErr := e.finish(err); err == nil {
			err = endErr
		}
	}()
	started, err := e.s.exec.Exec(ctx, e.sandbox, bothy.ExecRequest{Command: bothy.Command{Args: e.command}, Background: true, KeepRunning: true})
	if err != nil {
		return fmt.Errorf("cannot start the agent %q: %w", e.command[0], err)
	}
	e.warn("sandbox %s is ready after %s", e.sandbox, time.Since(begun).Round(time.Millisecond))
	relay := &acp.Relay{Note: e.warn}
	e.process = &acp.Process{
		Exec: e.s.exec, Snapshots: e.s.snapshots, Sandbox: e.sandbox, PID: started.PID, Stderr: e.stderr,
		Patience: time.Minute, Idle: e.f.idle, Busy: func() bool { return relay.Waiting() > 0 }, Note: e.warn,
	}
	e.project = &acp.Project{
		Files: e.s.files, Exec: e.s.exec, Sandbox: e.sandbox, Only: e.f.folder, At: e.f.at,
		Ignored: e.f.ignored, Exclude: e.f.exclude, States: states, Ready: e.process.Wake, Note: e.warn, Carried: e.carried,
	}
	relay.Agent, relay.Folders = e.process, e.project
	defer e.keepAlive(ctx, *req.TimeoutSeconds)()
	switch err := relay.Run(ctx, e.stdin, e.stdout); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exitCode(exitInterrupted)
	default: // the editor got the error
		e.printError(err)
		return exitCode(exitFailed)
	}
}

func (e *editing) carried(local string, r folder.Report) {
	switch {
	case r.In > 0 && r.Out > 0:
		e.warn("%s: carried %d in and %d out (%s)", local, r.In, r.Out, size(r.Bytes))
	case r.In > 0:
		e.warn("%s: carried %d in (%s)", local, r.In, size(r.Bytes))
	default:
		e.warn("%s: carried %d out (%s)", local, r.Out, size(r.Bytes))
	}
}

// keepAlive postpones the end of the sandbox for as long as this program runs. If the program is
// killed, the sandbox ends by itself.
func (e *editing) keepAlive(ctx context.Context, seconds int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for seconds > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(seconds) * time.Second / 3):
			}
			if !e.process.Asleep() {
				_, _ = e.s.sandboxes.Update(ctx, e.sandbox, bothy.SandboxUpdate{TimeoutSeconds: &seconds})
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// finish copies out the remaining changes, and ends or pauses the sandbox, whatever
// happened.
func (e *editing) finish(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if e.process != nil && !e.process.Asleep() {
		e.process.Stop(ctx, 5*time.Second)
		if syncErr := e.project.Sync(ctx); syncErr != nil {
			e.warn("what the agent did last could not be carried out of the sandbox: %v", syncErr)
			if !e.f.keep {
				e.warn("the sandbox %s is left as it is until its time is up: bothy cp %s:PATH . fetches from it", e.sandbox, e.sandbox)
				return nil
			}
		}
	}
	if e.f.keep && e.project != nil {
		return e.leave(ctx)
	}
	return e.terminate(e.s, e.sandbox)
}
