package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// ReadOptions configure how a Dockerfile is read.
type ReadOptions struct {
	Args   map[string]string // from --build-arg
	Target string            // the stage to build; "" is the last
}

// secretName matches names of arguments that look like secrets.
var secretName = regexp.MustCompile(`(?i)(passw(or)?d|secret|token|api_?key|private_?key|credential)`)

// Dockerfile reads a recipe from a Dockerfile. Unsupported instructions are an error with the
// line and the reason.
func Dockerfile(in io.Reader, opts ReadOptions) (*Recipe, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxDockerfile+1))
	if err != nil {
		return nil, err
	}
	if err := checkText(text); err != nil {
		return nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, located(err)
	}
	if n := len(tree.AST.Children); n > maxSteps {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the Dockerfile has %d instructions, more than %d", n, maxSteps)
	}
	stages, meta, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		return nil, located(err)
	}
	if len(stages) > maxStages {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the Dockerfile has %d stages, more than %d", len(stages), maxStages)
	}
	r := &reader{opts: opts, lex: shell.NewLex(tree.EscapeToken), index: map[string]int{}, recipe: &Recipe{Escape: tree.EscapeToken}}
	if err := r.globals(meta); err != nil {
		return nil, err
	}
	for i, s := range stages {
		if err := r.stage(i, s); err != nil {
			return nil, err
		}
	}
	if err := r.checkSources(); err != nil {
		return nil, err
	}
	r.markLater()
	return r.recipe, r.target()
}

// markLater notes which stages start from something that has the name of a later stage.
func (r *reader) markLater() {
	for i := range r.recipe.Stages {
		s := &r.recipe.Stages[i]
		if s.FromStage == nil {
			s.Later = r.later(i, s.From)
		}
	}
}

// later is the line of a stage with a name, after the one with a number, or 0.
func (r *reader) later(stage int, name string) int {
	for _, s := range r.recipe.Stages[stage+1:] {
		if s.Name != "" && strings.EqualFold(s.Name, name) {
			return s.Line
		}
	}
	return 0
}

// checkText refuses a text that takes long to parse: the parser copies all of a heredoc for each of
// its lines.
func checkText(text []byte) error {
	if len(text) > maxDockerfile {
		return tooLarge("the Dockerfile", len(text))
	}
	lines := bytes.Count(text, []byte{'\n'})
	if most := maxHeredocs / max(len(text), 1); lines > most && bytes.Contains(text, []byte("<<")) {
		return bothy.Errorf(bothy.CodeTooLarge, "the Dockerfile has heredocs and %d lines; with its %d bytes it may have %d", lines, len(text), most).
			WithHint("Put large files into the context, and use COPY.")
	}
	return nil
}

type reader struct {
	opts   ReadOptions
	lex    *shell.Lex
	args   map[string]string // those before FROM
	index  map[string]int    // stages by name
	recipe *Recipe
	values values
}

// word replaces the variables of a word of FROM, or of an ARG before it.
func (r *reader) word(text string) (string, error) {
	return r.values.word(r.lex, text, variables(r.args), maxValue)
}

// variables is the environment for the words of FROM.
type variables map[string]string

func (v variables) Get(name string) (string, bool) { s, ok := v[name]; return s, ok }
func (v variables) Keys() []string                 { return slices.Sorted(maps.Keys(v)) }

func (r *reader) globals(meta []instructions.ArgCommand) error {
	r.args = maps.Clone(platformArgs)
	for _, m := range meta {
		for _, a := range m.Args {
			r.warnOfSecret(a.Key, line(m.Location()))
			if given, ok := r.opts.Args[a.Key]; ok {
				r.args[a.Key] = given
			} else if a.Value != nil {
				value, err := r.word(*a.Value)
				if err != nil {
					return refuse(line(m.Location()), "ARG %s: %v", a.Key, err)
				}
				r.args[a.Key] = value
			}
		}
	}
	return nil
}

func (r *reader) warnOfSecret(name string, at int) {
	if secretName.MatchString(name) && len(r.recipe.Warnings) < maxWarnings {
		r.recipe.Warnings = append(r.recipe.Warnings, fmt.Sprintf(
			"line %d: the argument %s looks like a secret, and arguments can be seen in the build's record: use RUN --mount=type=secret", at, name))
	}
}

func (r *reader) stage(i int, s instructions.Stage) error {
	at := line(s.Location)
	if err := r.checkPlatform(s.Platform, at); err != nil {
		return err
	}
	base, err := r.word(s.BaseName)
	if err != nil {
		return refuse(at, "FROM: %v", err)
	}
	if base == "" {
		return refuse(at, "FROM %s is empty: give the ARG a default or a --build-arg", s.BaseName)
	}
	out := Stage{Name: s.Name, Line: at}
	if from, ok := r.index[strings.ToLower(base)]; ok {
		out.FromStage = &from
	} else {
		out.From = base
	}
	for _, c := range s.Commands {
		step, err := r.step(c)
		if err != nil {
			return err
		}
		if step != nil {
			if n := step.items(); n > maxItems {
				return refuse(step.Line, "it has %d words, more than %d", n, maxItems)
			}
			step.Text = textOf(c)
			out.Steps = append(out.Steps, *step)
		}
	}
	r.recipe.Stages = append(r.recipe.Stages, out)
	if s.Name != "" {
		r.index[strings.ToLower(s.Name)] = i
	}
	return nil
}

// textOf is the first line of an instruction.
func textOf(c instructions.Command) string {
	text, ok := c.(fmt.Stringer)
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(text.String(), "\n")
	return first
}

// checkPlatform accepts only this server's platform.
func (r *reader) checkPlatform(platform string, at int) error {
	if platform == "" {
		return nil
	}
	got, err := r.word(platform)
	if err != nil {
		return refuse(at, "FROM: %v", err)
	}
	if got != hostPlatform {
		return refuse(at, "FROM --platform=%s is not supported: templates are made for this server's own platform, %s", platform, hostPlatform)
	}
	return nil
}

const hostPlatform = "linux/" + runtime.GOARCH

// platformArgs are predefined by BuildKit before FROM, and in stages that declare them.
var platformArgs = map[string]string{
	"BUILDPLATFORM": hostPlatform, "BUILDOS": "linux", "BUILDARCH": runtime.GOARCH, "BUILDVARIANT": "",
	"TARGETPLATFORM": hostPlatform, "TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "TARGETVARIANT": "", "TARGETSTAGE": "",
}

// checkSources refuses a --from with the number or the name of a later stage.
func (r *reader) checkSources() error {
	for i, stage := range r.recipe.Stages {
		for _, s := range stage.Steps {
			for _, from := range s.sources() {
				if n, err := strconv.Atoi(from); err == nil && (n < 0 || n >= i) {
					return refuse(s.Line, "there is no stage %d before this one", n)
				}
				if _, ok := r.find(from, i); ok {
					continue
				}
				if strings.EqualFold(from, stage.Name) {
					return refuse(s.Line, "a stage cannot copy from itself, which is %s", stage.Name)
				}
				if at := r.later(i, from); at != 0 {
					return refuse(s.Line, "the stage %s begins later, on line %d: move it before the stage of this line", from, at)
				}
			}
		}
	}
	return nil
}

// sources are what a step takes files from, other than its own stage and the context.
func (s *Step) sources() []string {
	var list []string
	if s.Copy != nil && s.Copy.From != "" {
		list = append(list, s.Copy.From)
	}
	for _, m := range s.Mounts {
		if m.From != "" {
			list = append(list, m.From)
		}
	}
	return list
}

// target keeps the requested stage and those that it needs, in order.
func (r *reader) target() error {
	stages := r.recipe.Stages
	last := len(stages) - 1
	if r.opts.Target != "" {
		i, ok := r.find(r.opts.Target, len(stages))
		if !ok {
			return bothy.Errorf(bothy.CodeInvalid, "the Dockerfile has no stage %s", r.opts.Target).
				WithHint("Give the name or the number of one of its stages.")
		}
		last = i
	}
	needed := map[int]bool{}
	r.need(last, needed)
	moved, kept := map[int]int{}, []Stage(nil)
	for i, s := range stages {
		if needed[i] {
			moved[i] = len(kept)
			kept = append(kept, s)
		}
	}
	for i := range kept {
		if f := kept[i].FromStage; f != nil {
			n := moved[*f]
			kept[i].FromStage = &n
		}
		r.renumber(&kept[i], moved)
	}
	r.recipe.Stages = kept
	return nil
}

// renumber updates references to stages to their new numbers.
func (r *reader) renumber(s *Stage, moved map[int]int) {
	limit := s.Line
	for i := range s.Steps {
		if c := s.Steps[i].Copy; c != nil {
			c.From = r.moved(c.From, limit, moved)
		}
		for j := range s.Steps[i].Mounts {
			m := &s.Steps[i].Mounts[j]
			m.From = r.moved(m.From, limit, moved)
		}
	}
}

func (r *reader) moved(from string, line int, moved map[int]int) string {
	if i, ok := r.find(from, r.before(line)); ok {
		return strconv.Itoa(moved[i])
	}
	return from
}

// before counts the stages that begin before a line.
func (r *reader) before(line int) int {
	n := 0
	for _, s := range r.recipe.Stages {
		if s.Line < line {
			n++
		}
	}
	return n
}

// find looks up one of the first n stages by its number or its name.
func (r *reader) find(name string, n int) (int, bool) {
	if i, err := strconv.Atoi(name); err == nil {
		return i, i >= 0 && i < n
	}
	for i := n - 1; i >= 0; i-- {
		if s := r.recipe.Stages[i].Name; s != "" && strings.EqualFold(s, name) {
			return i, true
		}
	}
	return 0, false
}

func (r *reader) need(i int, needed map[int]bool) {
	if needed[i] {
		return
	}
	needed[i] = true
	s := r.recipe.Stages[i]
	if s.FromStage != nil {
		r.need(*s.FromStage, needed)
	}
	for _, step := range s.Steps {
		for _, from := range step.sources() {
			if j, ok := r.find(from, i); ok {
				r.need(j, needed)
			}
		}
	}
}

func line(where []parser.Range) int {
	if len(where) == 0 {
		return 0
	}
	return where[0].Start.Line
}

// maxRefusal limits an error, which may quote a word of any length.
const maxRefusal = 1000

func refuse(at int, format string, args ...any) error {
	return bothy.Errorf(bothy.CodeInvalid, "Dockerfile line %d: %s", at, shorten(fmt.Sprintf(format, args...), maxRefusal))
}

// located adds the line to a parser error.
func located(err error) error {
	var where *parser.LocationError
	if errors.As(err, &where) && len(where.Locations) > 0 {
		// The innermost is the instruction itself.
		return refuse(line(where.Locations[0]), "%v", where.Unwrap())
	}
	return bothy.Errorf(bothy.CodeInvalid, "cannot parse the Dockerfile: %v", err)
}
