package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/coding"
	"github.com/bothy-dev/bothy/coding/acp"
	"github.com/bothy-dev/bothy/coding/folder"
)

// The metadata of an agent's sandbox.
const (
	agentName   = "bothy.agent"
	agentFolder = "bothy.agent.folder"
)

// agentRun is one task of an agent.
type agentRun struct {
	*app
	s       *session
	f       *agentRunFlags
	agent   *coding.Agent
	command []string

	sandbox string
	dir     string // of the repository in the sandbox, or ""
}

func (r *agentRun) run(ctx context.Context, cmd *cobra.Command) (err error) {
	if err := r.begin(ctx, cmd); err != nil {
		return err
	}
	defer func() { err = r.end(err) }()
	if r.f.repo != "" {
		if err := r.fetch(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	code, err := r.work(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	if r.f.out != "" {
		if err := r.patch(ctx); err != nil {
			return err
		}
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// begin makes a sandbox, or takes up one of an earlier run.
func (r *agentRun) begin(ctx context.Context, cmd *cobra.Command) error {
	r.last.hold()
	if earlier := r.f.fork + r.f.resume; earlier != "" {
		return r.continueIn(ctx, earlier)
	}
	req, err := r.f.create.request(cmd.Flags())
	if err != nil {
		return err
	}
	if isURL(r.f.repo) {
		if err := allowRepository(&req, r.f.repo); err != nil {
			return err
		}
	}
	if err := r.agent.Apply(&req, os.LookupEnv); err != nil {
		return err
	}
	if req.TimeoutSeconds == nil {
		req.TimeoutSeconds = new(6 * 3600)
	}
	if req.OnTimeout == "" {
		req.OnTimeout = bothy.TimeoutPause
	}
	req.Metadata = cloneWith(req.Metadata, agentName, r.agent.Name)
	if r.f.repo != "" {
		r.dir = path.Join(bothy.DefaultCwd, repositoryName(r.f.repo))
		req.Metadata[agentFolder] = r.dir
	}
	sandbox, err := r.create(context.WithoutCancel(ctx), r.s, req)
	if err != nil {
		return err
	}
	r.sandbox = sandbox.ID
	return r.printStarted("new")
}

// continueIn continues in a sandbox of an earlier run, or in a copy of it.
func (r *agentRun) continueIn(ctx context.Context, id string) error {
	sandbox, err := r.s.sandboxes.Get(ctx, id)
	if err != nil {
		return err
	}
	if sandbox.Metadata[agentName] != r.agent.Name {
		return usagef("`bothy agent run` without --continue and --fork makes a new one.", "the sandbox %s is not one of the agent %s", id, r.agent.Name)
	}
	r.dir = sandbox.Metadata[agentFolder]
	if r.f.fork != "" {
		copies, err := r.s.snapshots.Fork(ctx, id, bothy.ForkRequest{Count: 1, Secrets: true})
		if err != nil {
			return err
		}
		r.sandbox = copies[0].ID
		return r.printStarted("copy")
	}
	r.sandbox = id
	if sandbox.State == bothy.StatePaused {
		if _, err := r.s.snapshots.Resume(ctx, id, bothy.ResumeOptions{}); err != nil {
			return err
		}
	}
	return r.printStarted("resumed")
}

// printStarted prints immediately which sandbox it is.
func (r *agentRun) printStarted(how string) error {
	if r.json {
		return r.printJSON(map[string]any{"sandbox_id": r.sandbox, "started": how})
	}
	r.warn("sandbox %s (%s)", r.sandbox, how)
	return nil
}

// allowRepository lets the sandbox reach the host of a repository.
func allowRepository(req *bothy.SandboxCreate, repo string) error {
	u, err := url.Parse(repo)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return usagef("Write it as in https://git.example.com/team/project.", "--repo %q is not a URL with https", repo)
	}
	if u.User != nil {
		return usagef("Give it with --secret, and a credential helper in the template.", "--repo holds a credential, which would be in the sandbox")
	}
	agent := coding.Agent{Domains: []string{u.Hostname()}}
	return agent.Apply(req, os.LookupEnv)
}

// repositoryName returns the name of the folder for a repository.
func repositoryName(repo string) string {
	if !isURL(repo) {
		if dir, err := filepath.Abs(repo); err == nil {
			repo = dir
		}
	}
	name := strings.TrimSuffix(path.Base(strings.TrimRight(repo, "/")), ".git")
	if name == "" || name == "." || name == "/" {
		return "project"
	}
	return name
}

// fetch copies the repository into the sandbox, and records its initial state.
func (r *agentRun) fetch(ctx context.Context) error {
	if isURL(r.f.repo) {
		clone := []string{"git", "clone", "--quiet"}
		if r.f.branch != "" {
			clone = append(clone, "--branch", r.f.branch)
		}
		if err := r.inside(ctx, bothy.ExecRequest{Command: bothy.Command{Args: append(clone, "--", r.f.repo, r.dir)}}); err != nil {
			return fmt.Errorf("cannot clone %s: %w", r.f.repo, err)
		}
	} else if err := r.carry(ctx); err != nil {
		return err
	}
	if err := r.inside(ctx, bothy.ExecRequest{Command: bothy.Command{Args: []string{"sh", "-c", baseScript}}, Cwd: r.dir}); err != nil {
		return fmt.Errorf("cannot record the repository's initial state: %w", err)
	}
	return nil
}

// carry copies a folder of this host.
func (r *agentRun) carry(ctx context.Context) error {
	dir, err := filepath.Abs(r.f.repo)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return fmt.Errorf("cannot carry %s: %w", r.f.repo, reason(err))
	}
	if err := r.inside(ctx, bothy.ExecRequest{Command: bothy.Command{Args: []string{"mkdir", "-p", r.dir}}}); err != nil {
		return err
	}
	f, err := folder.New(r.s.files, folder.Options{Local: dir, Inside: r.dir, Sandbox: r.sandbox, Note: r.warn})
	if err != nil {
		return err
	}
	carried, err := f.Sync(ctx)
	if err == nil && !r.json {
		r.warn("%s: carried %d in (%s)", dir, carried.In, size(carried.Bytes))
	}
	return err
}

// The agent's own repository is left alone: a second one is used to find changes.
const (
	baseGit    = `git --git-dir="$HOME/.cache/bothy/base.git" --work-tree=. -c core.autocrlf=false -c user.name=bothy -c user.email=bothy@localhost -c commit.gpgsign=false `
	baseScript = `mkdir -p "$HOME/.cache/bothy" && git init --quiet --bare "$HOME/.cache/bothy/base.git" && ` +
		baseGit + `add -A . && ` + baseGit + `commit --quiet --allow-empty --no-verify -m before`
	patchScript = baseGit + `add -A . && ` + baseGit + `diff --cached --binary --no-ext-diff --no-textconv --no-color HEAD`
)

// inside runs a command in the sandbox that prints nothing when it succeeds.
func (r *agentRun) inside(ctx context.Context, req bothy.ExecRequest) error {
	result, err := r.s.exec.Exec(ctx, r.sandbox, req)
	if err == nil && result.ExitCode != 0 {
		err = errors.New(strings.TrimSpace(result.Stderr + result.Stdout))
	}
	return err
}

// work makes the agent do the task, and returns its exit code.
func (r *agentRun) work(ctx context.Context) (int, error) {
	started, err := r.s.exec.Exec(ctx, r.sandbox, bothy.ExecRequest{
		Command: bothy.Command{Args: r.command}, Cwd: r.dir, Background: true, KeepRunning: true,
	})
	if err != nil {
		return 0, err
	}
	// An agent that reads its input would wait for it.
	if err := r.s.exec.Stdin(ctx, r.sandbox, started.PID, nil, true); err != nil && !inputClosed(err) {
		return 0, err
	}
	out, stderr := coding.Render(r.agent.Output, r.stdout), r.stderr
	if r.json {
		out, stderr = jsonPieces{r.app, "stdout"}, jsonPieces{r.app, "stderr"}
	}
	process := &acp.Process{
		Exec: r.s.exec, Snapshots: r.s.snapshots, Sandbox: r.sandbox, PID: started.PID, Stderr: stderr, Patience: time.Minute,
		Busy: func() bool { return true }, Note: r.warn,
	}
	err = process.Follow(ctx, func(p []byte) error {
		_, err := out.Write(p)
		return err
	})
	if closeErr := out.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	var ended *acp.Ended
	if errors.As(err, &ended) {
		if ended.OOM {
			r.warn("%v", ended)
		}
		return ended.Code, nil
	}
	_ = r.s.exec.Signal(context.WithoutCancel(ctx), r.sandbox, started.PID, int(syscall.SIGKILL))
	return 0, err
}

// jsonPieces writes output as the API streams it.
type jsonPieces struct {
	*app
	stream string
}

func (j jsonPieces) Write(p []byte) (int, error) {
	return len(p), j.printJSON(map[string]string{"stream": j.stream, "data": base64.StdEncoding.EncodeToString(p), "encoding": "base64"})
}

func (jsonPieces) Close() error { return nil }

// agentPatch returns the changes in a sandbox's repository.
func agentPatch(ctx context.Context, s *session, id, dir string) (string, error) {
	var patch, problem strings.Builder
	code := -1
	err := s.exec.ExecStream(ctx, id, bothy.ExecRequest{Command: bothy.Command{Args: []string{"sh", "-c", patchScript}}, Cwd: dir}, func(e bothy.ExecEvent) error {
		data, err := e.Bytes()
		if err != nil {
			return err
		}
		if e.IsFinal {
			code = e.ExitCode
		}
		if e.Stream == "stderr" {
			problem.Write(data)
		} else {
			patch.Write(data)
		}
		return nil
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("cannot tell what was changed in %s: %s", dir, strings.TrimSpace(problem.String()))
	}
	return patch.String(), err
}

func (r *agentRun) patch(ctx context.Context) error {
	if r.dir == "" {
		return usagef("Start with --repo.", "--out: there is no repository in the sandbox %s", r.sandbox)
	}
	patch, err := agentPatch(ctx, r.s, r.sandbox, r.dir)
	if err != nil {
		return err
	}
	return writeAtomically(r.f.out, strings.NewReader(patch), nil)
}

// end pauses or ends the sandbox, and says how to continue.
func (r *agentRun) end(err error) error {
	if r.f.remove {
		if endErr := r.terminate(r.s, r.sandbox); err == nil {
			err = endErr
		}
		return r.final("stopped", err)
	}
	if pauseErr := pauseAgain(r.s, r.sandbox); pauseErr != nil {
		r.warn("the sandbox %s was not paused: %v", r.sandbox, pauseErr)
		return r.final("running", err)
	}
	if !r.json {
		r.hints()
	}
	return r.final("paused", err)
}

func (r *agentRun) hints() {
	w := r.stderr
	fmt.Fprintf(w, "bothy: sandbox %s is paused\n", r.sandbox)
	fmt.Fprintf(w, "  continue:   bothy agent run %s --continue %s --task …\n", r.agent.Name, r.sandbox)
	fmt.Fprintf(w, "  in a copy:  bothy agent run %s --fork %s --task …\n", r.agent.Name, r.sandbox)
	if r.dir != "" {
		fmt.Fprintf(w, "  changes:    bothy agent diff %s | git apply\n", r.sandbox)
	}
	fmt.Fprintf(w, "  end it:     bothy rm %s\n", r.sandbox)
}

// final prints the last line for a program.
func (r *agentRun) final(state string, err error) error {
	if !r.json {
		return err
	}
	code := exitDone
	var own exitCode
	switch {
	case errors.As(err, &own):
		code = int(own)
	case err != nil:
		code = codeFor(err)
	}
	if printErr := r.printJSON(map[string]any{"is_final": true, "exit_code": code, "sandbox_id": r.sandbox, "state": state}); printErr != nil {
		return printErr
	}
	return err
}
