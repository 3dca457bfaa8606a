package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/templates"
)

// dockerFlags are those of builds from Dockerfiles.
type dockerFlags struct {
	file    string
	args    []string
	target  string
	secrets []string
	logins  []string
	network networkFlags
	engine  string
	cpu     float64
	memory  int
	disk    int
	timeout int
	noCache bool
	detach  bool
	shell   bool
	start   startFlags
	// text is the Dockerfile of a built-in template.
	text string
}

// browser makes the flags build the template browser, which needs more memory than others.
func (f *dockerFlags) browser() {
	f.text = templates.Browser
	f.start.start, f.start.ready = "exec bothy-browser", "http://localhost:9222/json/version"
	want := &f.start.want
	want.User, want.TimeoutSeconds = "user", cmp.Or(want.TimeoutSeconds, 180)
	want.MemoryMB, want.DiskMB = cmp.Or(want.MemoryMB, 2048), cmp.Or(want.DiskMB, 4096)
}

func (f *dockerFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "build from this Dockerfile, `-` for standard input (default CONTEXT/Dockerfile)")
	flags.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG, as `KEY=VALUE` (repeatable)")
	flags.StringVar(&f.target, "target", "", "`stage` to make, instead of the last")
	flags.StringArrayVar(&f.secrets, "secret", nil, "what RUN --mount=type=secret shows, as `id=ID,src=FILE` or id=ID,env=NAME (repeatable)")
	flags.StringArrayVar(&f.logins, "registry", nil, registryUsage)
	flags.StringVar(&f.engine, "engine", "", "`engine` that runs commands (default the server's)")
	flags.Float64Var(&f.cpu, "cpu", 0, "`number` of processors for commands (default 1)")
	mebibytesVar(flags, &f.memory, "memory", "`size` of the memory for commands, as in 2g (default 2g, or what the plan allows)")
	mebibytesVar(flags, &f.disk, "disk", "`size` of the disk for commands, as in 16g (default 16g, or what the plan allows)")
	secondsVar(flags, &f.timeout, "timeout", "`time` that each command may take, as in 10m (default 1h)")
	flags.BoolVar(&f.noCache, "no-cache", false, "run every command again")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the build's id and do not wait for its end")
	flags.BoolVar(&f.shell, "shell-on-failure", false, "where a command fails, open a shell with what there was before it")
	f.start.add(flags)
	f.network.addFor(flags, "restricted")
}

// request makes a request from the flags; the context is still to be uploaded.
func (f *dockerFlags) request(name, folder string, stdin io.Reader) (req bothy.BuildRequest, err error) {
	req = bothy.BuildRequest{
		Name: name, Target: f.target, Engine: f.engine, CPU: f.cpu, MemoryMB: f.memory, DiskMB: f.disk,
		TimeoutSeconds: f.timeout, NoCache: f.noCache, ShellOnFailure: f.shell,
	}
	if req.Start, err = f.start.read(); err != nil {
		return req, err
	}
	path := f.file
	if path == "" {
		path = filepath.Join(folder, "Dockerfile")
	}
	var text []byte
	switch {
	case f.text != "":
		text = []byte(f.text)
	case path == "-":
		text, err = io.ReadAll(stdin)
	default:
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return req, usagef("Name the Dockerfile with -f, and the folder of its files after the template's name.", "the Dockerfile cannot be read: %v", err)
	}
	req.Dockerfile = string(text)
	if rel, err := filepath.Rel(folder, path); err == nil && folder != "" && filepath.IsLocal(rel) {
		req.File = filepath.ToSlash(rel) // for its .dockerignore
	}
	if req.Args, err = f.buildArgs(); err != nil {
		return req, err
	}
	if req.Secrets, err = f.readSecrets(); err != nil {
		return req, err
	}
	if req.Registries, err = readLogins(f.logins); err != nil {
		return req, err
	}
	req.Network, err = f.network.network()
	return req, err
}

// buildArgs parses --build-arg; one without a value has that of the environment.
func (f *dockerFlags) buildArgs() (map[string]string, error) {
	args := map[string]string{}
	for _, text := range f.args {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		if name == "" {
			return nil, usagef("Write it as KEY=VALUE.", "--build-arg %q has no name", text)
		}
		args[name] = value
	}
	return args, nil
}

func (f *dockerFlags) readSecrets() ([]bothy.BuildSecret, error) {
	var list []bothy.BuildSecret
	for _, text := range f.secrets {
		fields := fieldsOf(text)
		if fields["id"] == "" {
			return nil, usagef("Write it as id=ID,src=FILE or id=ID,env=NAME.", "--secret %q has no id", text)
		}
		s := bothy.BuildSecret{ID: fields["id"]}
		switch src := fields["src"] + fields["source"]; {
		case src != "":
			value, err := os.ReadFile(src)
			if err != nil {
				return nil, usagef("Give a file that can be read.", "--secret %s: %v", s.ID, err)
			}
			s.Value = string(value)
		default:
			name := fields["env"]
			if name == "" {
				name = s.ID
			}
			value, ok := os.LookupEnv(name)
			if !ok {
				return nil, usagef("Write it as id=ID,src=FILE or id=ID,env=NAME.", "--secret %s: there is no variable %s", s.ID, name)
			}
			s.Value = value
		}
		list = append(list, s)
	}
	return list, nil
}

// fieldsOf parses NAME=VALUE,NAME=VALUE.
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	return fields
}

const registryUsage = "login for a registry, as `host=HOST,username=NAME,password-env=NAME` or password-src=FILE (repeatable)"

// readLogins parses --registry. A password is never an argument, which others could see.
func readLogins(given []string) ([]bothy.RegistryLogin, error) {
	const hint = "Write it as host=HOST,username=NAME,password-env=NAME or password-src=FILE."
	var list []bothy.RegistryLogin
	for _, text := range given {
		fields := fieldsOf(text)
		l := bothy.RegistryLogin{Host: fields["host"], Username: fields["username"]}
		if l.Host == "" {
			return nil, usagef(hint, "--registry %q has no host", text)
		}
		if src := fields["password-src"]; src != "" {
			value, err := os.ReadFile(src)
			if err != nil {
				return nil, usagef("Give a file that can be read.", "--registry %s: %v", l.Host, err)
			}
			l.Password = strings.TrimRight(string(value), "\r\n")
		} else {
			value, ok := os.LookupEnv(fields["password-env"])
			if !ok {
				return nil, usagef(hint, "--registry %s: there is no variable %q with its password", l.Host, fields["password-env"])
			}
			l.Password = value
		}
		list = append(list, l)
	}
	return list, nil
}

// dockerBuild builds a template from a Dockerfile and shows its log.
func (a *app) dockerBuild(ctx context.Context, s *session, f *dockerFlags, name, folder string) error {
	req, err := f.request(name, folder, a.stdin)
	if err != nil {
		return err
	}
	if folder != "" {
		c, err := a.uploadContext(ctx, s, folder, req.File)
		if err != nil {
			return err
		}
		req.ContextID = c.ID
	}
	b, err := s.builder.StartBuild(ctx, req)
	if err != nil {
		return err
	}
	for _, w := range b.Warnings {
		a.warn("%s", w)
	}
	if f.detach {
		return a.show(b, func(w io.Writer) { io.WriteString(w, b.ID+"\n") })
	}
	return a.followBuild(ctx, s, b)
}

// followBuild shows a build's log until its end, and then the template. Interrupting it leaves
// the build running.
func (a *app) followBuild(ctx context.Context, s *session, b *bothy.Build) error {
	var last bothy.BuildEvent
	step := ""
	err := s.builder.BuildLog(ctx, b.ID, 0, func(_ int64, e bothy.BuildEvent) error {
		last = e
		if e.Template == nil && e.Error == "" {
			a.buildLine(e, e.Step != step)
			step = e.Step
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			a.warn("the build continues: bothy template logs %s shows it, and bothy template cancel %s ends it", b.ID, b.ID)
		}
		return err
	}
	if last.Template == nil {
		now, err := s.builder.Build(ctx, b.ID)
		if err != nil {
			return err
		}
		code := now.Code
		if code == "" {
			code = bothy.CodeConflict
		}
		e := bothy.Errorf(code, "%s", now.Error)
		e.Hint = now.Hint
		return a.openLeft(ctx, s, now, e)
	}
	return a.show(last.Template, func(w io.Writer) { printTemplate(w, last.Template) })
}

// openLeft opens a shell in the sandbox that a failed build has left, if there is one and this
// is a terminal, and then ends the sandbox.
func (a *app) openLeft(ctx context.Context, s *session, b *bothy.Build, failed *bothy.Error) error {
	if b.SandboxID == "" || !term.IsTerminal(int(a.stdin.Fd())) {
		return failed
	}
	a.warn("%s", failed.Detail)
	a.warn("this shell has what there was before the command; sandbox %s ends with it", b.SandboxID)
	err := a.shell(ctx, s, b.SandboxID, bothy.TerminalRequest{Env: terminalEnv(nil)})
	if _, ok := errors.AsType[exitCode](err); err != nil && !ok {
		a.warn("%v", err)
	}
	failed.Hint = ""
	if err := s.sandboxes.Terminate(context.WithoutCancel(ctx), b.SandboxID); err != nil {
		a.warn("sandbox %s was not ended: %v", b.SandboxID, err)
	}
	return failed
}

// buildLine prints one event: its step, if that has changed, and a command's output.
func (a *app) buildLine(e bothy.BuildEvent, begins bool) {
	if begins {
		io.WriteString(a.stderr, "=> "+join(e.Step, "")+"\n")
	}
	if e.Message != "" || !begins {
		io.WriteString(a.stderr, "   "+join(e.Message, "")+"\n")
	}
}

func newTemplateBuilds(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "builds",
		Short: "List builds from Dockerfiles",
		Args:  usage(cobra.NoArgs),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, _ []string) error {
		list, err := s.builder.Builds(ctx)
		if err != nil {
			return err
		}
		return a.show(list, func(w io.Writer) { printBuilds(w, list) })
	})
	return cmd
}

func newTemplateLogs(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs BUILD",
		Short: "Show a build's output, and follow it to its end",
		Args:  usage(cobra.ExactArgs(1)),
	}
	cmd.RunE = a.do(func(ctx context.Context, s *session, args []string) error {
		b, err := s.builder.Build(ctx, args[0])
		if err != nil {
			return err
		}
		return a.followBuild(ctx, s, b)
	})
	return cmd
}

func newTemplateCancel(a *app) *cobra.Command {
	return newForEach(a, "cancel BUILD…", "End builds", "", func(ctx context.Context, s *session, id string) error {
		_, err := s.builder.CancelBuild(ctx, id)
		return err
	})
}

func printBuilds(w io.Writer, list []*bothy.Build) {
	rows := make([][]string, len(list))
	for i, b := range list {
		rows[i] = []string{b.ID, b.Name, string(b.State), itoa(b.Done) + "/" + itoa(b.Steps), age(b.CreatedAt), orDash(b.Error)}
	}
	table(w, []string{"ID", "NAME", "STATE", "STEPS", "AGE", "ERROR"}, rows)
}
