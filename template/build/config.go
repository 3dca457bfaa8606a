package build

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// settings are an image's settings for commands.
type settings struct {
	Env     []Var             `json:"env,omitempty"` // in the order in which they were first set
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Image   bothy.ImageConfig `json:"image"`
	// CmdSet is set once the stage has its own CMD: ENTRYPOINT resets the base's CMD.
	CmdSet bool `json:"-"`
}

// Var is an environment variable.
type Var struct{ Name, Value string }

func (s *settings) clone() settings {
	c := *s
	c.Env = slices.Clone(s.Env)
	i := s.Image
	i.Labels = maps.Clone(i.Labels)
	i.ExposedPorts, i.Volumes, i.OnBuild = slices.Clone(i.ExposedPorts), slices.Clone(i.Volumes), slices.Clone(i.OnBuild)
	c.Image, c.CmdSet = i, false
	return c
}

func (s *settings) setEnv(name, value string) {
	for i := range s.Env {
		if s.Env[i].Name == name {
			s.Env[i].Value = value
			return
		}
	}
	s.Env = append(s.Env, Var{name, value})
}

func (s *settings) env(name string) (string, bool) {
	for _, v := range s.Env {
		if v.Name == name {
			return v.Value, true
		}
	}
	return "", false
}

// scope is what words of a stage can refer to: its environment, and the arguments declared so
// far.
type scope struct {
	s    *settings
	args map[string]string
}

// Get implements shell.EnvGetter.
func (v scope) Get(name string) (string, bool) {
	if value, ok := v.s.env(name); ok {
		return value, true
	}
	value, ok := v.args[name]
	return value, ok
}

// Keys implements shell.EnvGetter.
func (v scope) Keys() []string {
	keys := slices.Collect(maps.Keys(v.args))
	for _, e := range v.s.Env {
		keys = append(keys, e.Name)
	}
	return keys
}

// expander replaces variables in the words of steps.
type expander struct {
	lex    *shell.Lex
	v      scope
	values *values
}

func (e expander) words(list []string) ([]string, error) {
	var out []string
	for _, text := range list {
		more, err := e.values.words(e.lex, text, e.v)
		if err != nil {
			return nil, err
		}
		if out = append(out, more...); len(out) > maxItems {
			return nil, fmt.Errorf("it becomes more than %d words", maxItems)
		}
	}
	return out, nil
}

// expand returns a copy of a step with its variables replaced where Dockerfiles do so: the
// commands of RUN, CMD and ENTRYPOINT are left to their shell.
func (e expander) expand(s Step) (Step, error) {
	var err error
	each := func(text *string) {
		if err == nil {
			*text, err = e.values.word(e.lex, *text, e.v, maxValue)
		}
	}
	switch s.Kind {
	case Workdir, User, StopSignal:
		s.Args = slices.Clone(s.Args)
		for i := range s.Args {
			each(&s.Args[i])
		}
	case Expose, Volume:
		s.Args, err = e.words(s.Args)
	case Env, Label, Arg:
		s.Pairs = slices.Clone(s.Pairs)
		for i, p := range s.Pairs {
			each(&s.Pairs[i].Name)
			if p.Value != nil {
				value := *p.Value
				each(&value)
				s.Pairs[i].Value = &value
			}
		}
	case Copy, Add:
		f := *s.Copy
		f.Sources, f.Inline, f.Exclude = slices.Clone(f.Sources), slices.Clone(f.Inline), slices.Clone(f.Exclude)
		for i := range f.Exclude {
			each(&f.Exclude[i])
		}
		for i := range f.Sources {
			each(&f.Sources[i])
		}
		for i := range f.Inline {
			if f.Inline[i].Expand {
				f.Inline[i].Data, err = e.heredoc(f.Inline[i].Data, err)
			}
		}
		each(&f.Dest)
		each(&f.Chown)
		each(&f.Chmod)
		s.Copy = &f
	case Run:
		s.Mounts = slices.Clone(s.Mounts)
		for i := range s.Mounts {
			each(&s.Mounts[i].ID)
			each(&s.Mounts[i].Source)
			each(&s.Mounts[i].Target)
		}
	}
	if err != nil {
		return s, refuse(s.Line, "%s: %v", strings.ToUpper(string(s.Kind)), err)
	}
	return s, nil
}

// heredoc replaces variables in a text whose quotes are literal.
func (e expander) heredoc(text string, err error) (string, error) {
	if err != nil {
		return text, err
	}
	lex := shell.NewLex('\\')
	lex.RawQuotes, lex.RawEscapes = true, true
	return e.values.word(lex, text, e.v, maxText)
}

// check returns an error for too many settings.
func (s *settings) check() error {
	if n := len(s.Env) + len(s.Image.Labels) + len(s.Image.ExposedPorts) + len(s.Image.Volumes) + len(s.Image.OnBuild); n > maxItems {
		return fmt.Errorf("there are more than %d variables, labels, ports, volumes and ONBUILD instructions", maxItems)
	}
	return nil
}

// expose adds ports, each a number or a range of numbers with an optional protocol.
func (s *settings) expose(specs []string) error {
	ports := map[string]bool{}
	for _, p := range s.Image.ExposedPorts {
		ports[p] = true
	}
	for _, spec := range specs {
		numbers, protocol, ok := strings.Cut(strings.ToLower(spec), "/")
		if !ok {
			protocol = "tcp"
		}
		from, to, ok := strings.Cut(numbers, "-")
		if !ok {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first > last || !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			return fmt.Errorf("EXPOSE %s: write a port like 80, 53/udp or 8000-8010", spec)
		}
		for n := first; n <= last && len(ports) <= maxItems; n++ {
			ports[fmt.Sprintf("%d/%s", n, protocol)] = true
		}
	}
	s.Image.ExposedPorts = slices.Sorted(maps.Keys(ports))
	return nil
}

// apply applies a step that changes only settings.
func (s *settings) apply(step Step) error {
	switch step.Kind {
	case Env:
		for _, p := range step.Pairs {
			s.setEnv(p.Name, *p.Value)
		}
	case Label:
		if s.Image.Labels == nil {
			s.Image.Labels = map[string]string{}
		}
		for _, p := range step.Pairs {
			s.Image.Labels[p.Name] = *p.Value
		}
	case User:
		s.User = step.Args[0]
	case Expose:
		return s.expose(step.Args)
	case Volume:
		for _, path := range step.Args {
			s.Image.Volumes = add(s.Image.Volumes, path)
		}
	case Cmd:
		s.Image.Cmd, s.CmdSet = s.command(step), true
	case Entrypoint:
		s.Image.Entrypoint = s.command(step)
		if !s.CmdSet {
			s.Image.Cmd = nil
		}
	case Shell:
		s.Image.Shell = step.Args
	case StopSignal:
		s.Image.StopSignal = step.Args[0]
	case Healthcheck:
		s.Image.Healthcheck = health(step)
	case Onbuild:
		s.Image.OnBuild = append(s.Image.OnBuild, step.Args...)
	}
	return nil
}

func add(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	list = append(list, item)
	slices.Sort(list)
	return list
}

func (s *settings) shell() []string {
	if len(s.Image.Shell) > 0 {
		return s.Image.Shell
	}
	return []string{"/bin/sh", "-c"}
}

// command returns a CMD or ENTRYPOINT in the image's format.
func (s *settings) command(step Step) []string {
	if !step.UseShell {
		return step.Args
	}
	return append(slices.Clone(s.shell()), strings.Join(step.Args, " "))
}

func health(step Step) *bothy.Healthcheck {
	seconds := func(name string) float64 {
		d, _ := time.ParseDuration(step.Health[name]) // "" is 0
		return d.Seconds()
	}
	retries, _ := strconv.Atoi(step.Health["retries"])
	return &bothy.Healthcheck{
		Test: step.Args, IntervalSeconds: seconds("interval"), TimeoutSeconds: seconds("timeout"), StartPeriodSeconds: seconds("start_period"), Retries: retries,
	}
}
