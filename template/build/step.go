package build

import (
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// step converts an instruction to a step, or to none.
func (r *reader) step(c instructions.Command) (*Step, error) {
	at := line(c.Location())
	switch c := c.(type) {
	case *instructions.RunCommand:
		return runStep(c, at)
	case *instructions.CopyCommand:
		return copyStep(c, at)
	case *instructions.AddCommand:
		return addStep(c, at)
	case *instructions.EnvCommand:
		return &Step{Kind: Env, Line: at, Pairs: pairs(c.Env)}, nil
	case *instructions.LabelCommand:
		return &Step{Kind: Label, Line: at, Pairs: pairs(c.Labels)}, nil
	case *instructions.ArgCommand:
		return r.argStep(c, at), nil
	case *instructions.WorkdirCommand:
		return words(Workdir, at, c.Path), nil
	case *instructions.UserCommand:
		return words(User, at, c.User), nil
	case *instructions.ExposeCommand:
		return words(Expose, at, c.Ports...), nil
	case *instructions.VolumeCommand:
		return words(Volume, at, c.Volumes...), nil
	case *instructions.StopSignalCommand:
		return words(StopSignal, at, c.Signal), nil
	case *instructions.ShellCommand:
		return words(Shell, at, c.Shell...), nil
	case *instructions.CmdCommand:
		return &Step{Kind: Cmd, Line: at, Args: c.CmdLine, UseShell: c.PrependShell}, nil
	case *instructions.EntrypointCommand:
		return &Step{Kind: Entrypoint, Line: at, Args: c.CmdLine, UseShell: c.PrependShell}, nil
	case *instructions.HealthCheckCommand:
		return healthStep(c, at), nil
	case *instructions.MaintainerCommand:
		return &Step{Kind: Label, Line: at, Pairs: []Pair{{"maintainer", &c.Maintainer}}}, nil
	case *instructions.OnbuildCommand:
		if _, err := r.trigger(c.Expression, at); err != nil {
			return nil, err
		}
		return words(Onbuild, at, c.Expression), nil
	}
	return nil, refuse(at, "%s is not supported", strings.ToUpper(c.Name()))
}

// trigger reads an instruction of ONBUILD, for a stage on a line.
func (r *reader) trigger(text string, at int) (*Step, error) {
	if len(text) > maxDockerfile {
		return nil, refuse(at, "ONBUILD has %d bytes, more than %d", len(text), maxDockerfile)
	}
	if err := checkText([]byte(text)); err != nil {
		return nil, err
	}
	tree, err := parser.Parse(strings.NewReader(text))
	if err != nil || len(tree.AST.Children) != 1 {
		return nil, refuse(at, "ONBUILD %s is not one instruction", text)
	}
	c, err := instructions.ParseCommand(tree.AST.Children[0])
	if err != nil {
		return nil, refuse(at, "ONBUILD %s: %v", text, err)
	}
	if _, ok := c.(*instructions.OnbuildCommand); ok {
		return nil, refuse(at, "ONBUILD ONBUILD is not supported")
	}
	s, err := r.step(c)
	if err != nil {
		return nil, refuse(at, "ONBUILD %s: %s", text, bothy.AsError(err).Detail)
	}
	for _, from := range s.sources() {
		if _, err := strconv.Atoi(from); err == nil {
			return nil, refuse(at, "ONBUILD %s: it cannot copy from a stage", text)
		}
	}
	s.Line, s.Text = at, "ONBUILD "+textOf(c)
	if n := s.items(); n > maxItems {
		return nil, refuse(at, "ONBUILD has %d words, more than %d", n, maxItems)
	}
	return s, nil
}

// triggers are the steps that a stage begins with because of what it starts from.
func triggers(list []string, opts ReadOptions, at int) ([]Step, error) {
	size := 0
	for _, text := range list {
		size += len(text)
	}
	if size > maxDockerfile {
		return nil, refuse(at, "the ONBUILD instructions of what it starts from have %d bytes, more than %d", size, maxDockerfile)
	}
	r := &reader{opts: opts, recipe: &Recipe{}}
	var steps []Step
	for _, text := range list {
		s, err := r.trigger(text, at)
		if err != nil {
			return nil, err
		}
		steps = append(steps, *s)
	}
	return steps, nil
}

func words(kind Kind, at int, args ...string) *Step { return &Step{Kind: kind, Line: at, Args: args} }

func pairs(kvs instructions.KeyValuePairs) []Pair {
	list := make([]Pair, len(kvs))
	for i, kv := range kvs {
		list[i] = Pair{kv.Key, &kv.Value}
	}
	return list
}

// argStep sets an argument to the value of --build-arg or, if it has no default of its own, of
// an ARG with the same name before FROM.
func (r *reader) argStep(c *instructions.ArgCommand, at int) *Step {
	s := &Step{Kind: Arg, Line: at}
	for _, a := range c.Args {
		r.warnOfSecret(a.Key, at)
		value := a.Value
		if given, ok := r.opts.Args[a.Key]; ok {
			value = &given
		} else if global, ok := r.args[a.Key]; ok && value == nil {
			value = &global
		}
		s.Pairs = append(s.Pairs, Pair{a.Key, value})
	}
	return s
}

func runStep(c *instructions.RunCommand, at int) (*Step, error) {
	// Expand validates mounts. Their variables are kept as written.
	if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		return nil, refuse(at, "%v", err)
	}
	s := &Step{Kind: Run, Line: at, Args: c.CmdLine, UseShell: c.PrependShell}
	for _, f := range c.Files {
		s.Files = append(s.Files, File{Name: f.Name, Data: f.Data, Chomp: f.Chomp})
	}
	switch network := instructions.GetNetwork(c); network {
	case instructions.NetworkDefault, "":
	case instructions.NetworkNone:
		s.Network = network
	default:
		return nil, refuse(at, "RUN --network=%s is not supported: a command never has the host's network", network)
	}
	for _, m := range instructions.GetMounts(c) {
		if m.Type == instructions.MountTypeSSH {
			return nil, refuse(at, "RUN --mount=type=ssh is not supported: use --mount=type=secret")
		}
		if m.Target == "" && m.Type != instructions.MountTypeSecret {
			return nil, refuse(at, "RUN --mount=type=%s needs a target", m.Type)
		}
		s.Mounts = append(s.Mounts, mount(m))
	}
	return s, nil
}

func mount(m *instructions.Mount) Mount {
	out := Mount{
		Type: string(m.Type), ID: m.CacheID, Source: m.Source, From: m.From, Target: m.Target,
		Sharing: string(m.CacheSharing), ReadOnly: m.ReadOnly, Required: m.Required, Size: m.SizeLimit,
	}
	for to, from := range map[*uint64]*uint64{&out.Mode: m.Mode, &out.UID: m.UID, &out.GID: m.GID} {
		if from != nil {
			*to = *from
		}
	}
	if m.Env != nil {
		out.Env = *m.Env
	}
	return out
}

func copyStep(c *instructions.CopyCommand, at int) (*Step, error) {
	f := files(c.SourcesAndDest)
	f.From, f.Chown, f.Chmod, f.Link = c.From, c.Chown, c.Chmod, c.Link
	f.Exclude, f.Parents = c.ExcludePatterns, c.Parents
	return &Step{Kind: Copy, Line: at, Copy: f}, nil
}

func addStep(c *instructions.AddCommand, at int) (*Step, error) {
	if c.Checksum != "" || c.Unpack != nil || c.KeepGitDir != nil {
		return nil, refuse(at, "ADD does not support --checksum, --keep-git-dir and --unpack")
	}
	for _, src := range c.SourcePaths {
		if strings.Contains(src, "://") || strings.HasPrefix(src, "git@") {
			return nil, refuse(at, "ADD %s is not supported: fetch it in a RUN, under the build's network policy", src)
		}
	}
	f := files(c.SourcesAndDest)
	f.Chown, f.Chmod, f.Link, f.Exclude = c.Chown, c.Chmod, c.Link, c.ExcludePatterns
	return &Step{Kind: Add, Line: at, Copy: f}, nil
}

func files(s instructions.SourcesAndDest) *Files {
	f := &Files{Sources: s.SourcePaths, Dest: s.DestPath}
	for _, c := range s.SourceContents {
		f.Inline = append(f.Inline, File{Name: c.Path, Data: c.Data, Expand: c.Expand})
	}
	return f
}

func healthStep(c *instructions.HealthCheckCommand, at int) *Step {
	s := &Step{Kind: Healthcheck, Line: at, Args: c.Health.Test, Health: map[string]string{}}
	for name, d := range map[string]interface{ String() string }{
		"interval": c.Health.Interval, "timeout": c.Health.Timeout, "start_period": c.Health.StartPeriod,
	} {
		if d.String() != "0s" {
			s.Health[name] = d.String()
		}
	}
	if c.Health.Retries > 0 {
		s.Health["retries"] = strconv.Itoa(c.Health.Retries)
	}
	return s
}
