package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/name"
)

// buildStart describes what E2B's clients want to build.
type buildStart struct {
	FromImage    string          `json:"fromImage"`
	FromTemplate string          `json:"fromTemplate"`
	Registry     json.RawMessage `json:"fromImageRegistry"`
	Force        bool            `json:"force"`
	Steps        []buildStep     `json:"steps"`
	StartCmd     string          `json:"startCmd"`
	ReadyCmd     string          `json:"readyCmd"`
}

type buildStep struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	Force     bool     `json:"force"`
	FilesHash string   `json:"filesHash"`
}

// The default user and folder of commands in E2B's builds, and how many steps set them.
const (
	buildUser = "user"
	buildHome = "/home/user"
	ownSteps  = 2
)

// translate makes a request for Bothy's own builder.
func (d *Door) translate(ctx context.Context, b *templateBuild, in buildStart) (*bothy.BuildRequest, error) {
	from, err := d.buildBase(ctx, in)
	if err != nil {
		return nil, err
	}
	logins, err := loginsOf(in)
	if err != nil {
		return nil, err
	}
	t := translation{d: d, project: b.project, user: buildUser, contexts: map[string]string{}}
	t.line("FROM %s", from)
	t.line("USER %s", buildUser)
	t.line("WORKDIR %s", buildHome)
	force := in.Force
	var ends []int
	for i, s := range in.Steps {
		if err := t.step(s); err != nil {
			return nil, invalid("step %d, %s: %s", i+1, s.Type, bothy.AsError(err).Detail)
		}
		ends = append(ends, t.lines-1) // FROM is none of a build's steps
		force = force || s.Force
	}
	b.ends = ends
	return &bothy.BuildRequest{Name: b.ref(), Dockerfile: t.text.String(), Contexts: t.contexts, NoCache: force, Start: startOf(b, in), Registries: logins}, nil
}

// loginsOf are the credentials for the registry of a build's image.
func loginsOf(in buildStart) ([]bothy.RegistryLogin, error) {
	if len(in.Registry) == 0 || string(in.Registry) == "null" {
		return nil, nil
	}
	var r struct {
		Type     string `json:"type"`
		Username string `json:"username"`
		Password string `json:"password"`
		Account  string `json:"serviceAccountJson"`
	}
	if err := json.Unmarshal(in.Registry, &r); err != nil {
		return nil, invalid("fromImageRegistry cannot be read: %v", err)
	}
	if in.FromImage == "" {
		return nil, invalid("credentials of a registry are for fromImage")
	}
	ref, err := name.ParseReference(in.FromImage)
	if err != nil {
		return nil, invalid("%q is not a reference to an image", in.FromImage)
	}
	login := bothy.RegistryLogin{Host: ref.Context().RegistryStr(), Username: r.Username, Password: r.Password}
	switch r.Type {
	case "registry":
	case "gcp":
		login.Username, login.Password = "_json_key", r.Account
	default:
		return nil, unsupported("credentials of the type %q for a registry", r.Type).
			WithHint("Give a user name and a password, or import the image with `bothy template import`")
	}
	return []bothy.RegistryLogin{login}, nil
}

const (
	// waitForStart is how E2B waits for a program without a ready command.
	waitForStart  = "sleep 20"
	startPatience = 600
)

// startOf returns the program that already runs in sandboxes of a template, or nil.
func startOf(b *templateBuild, in buildStart) *bothy.TemplateStart {
	if in.StartCmd == "" && in.ReadyCmd == "" {
		return nil
	}
	login := func(command string) string { return "exec /bin/bash -l -c " + shellQuote(command) }
	s := &bothy.TemplateStart{
		Command: login(cmp.Or(in.StartCmd, ":")), Ready: &bothy.TemplateReady{Command: login(cmp.Or(in.ReadyCmd, waitForStart))},
		TimeoutSeconds: startPatience, CPU: float64(b.cpu), MemoryMB: b.memoryMB,
	}
	if m := waitForPort.FindStringSubmatch(in.ReadyCmd); m != nil {
		if port, err := strconv.Atoi(m[1]); err == nil {
			s.Ready = &bothy.TemplateReady{Port: port}
		}
	}
	return s
}

// waitForPort is the command that E2B's SDKs make of wait_for_port. It needs a program that few
// templates have; the server can check the port itself.
var waitForPort = regexp.MustCompile(`^(?:\[ -n "\$\()?ss -[Hntlu]+ (?:sport = |\| grep )?:(\d+)(?:\)" \])?$`)

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'"'"'`) + "'" }

// buildBase is what a build starts from.
func (d *Door) buildBase(ctx context.Context, in buildStart) (string, error) {
	name, isTemplate := in.FromImage, false
	if in.FromTemplate != "" {
		name, isTemplate = in.FromTemplate, true
	}
	if name == "" || in.FromImage != "" && in.FromTemplate != "" {
		return "", invalid("give either fromImage or fromTemplate")
	}
	if strings.ContainsAny(name, " \t\r\n\\") {
		return "", invalid("%q is not the name of an image", name)
	}
	// E2B's own images are the base of its templates.
	if image, ok := strings.CutPrefix(name, "e2bdev/"); ok {
		name, isTemplate = image, true
	}
	if !isTemplate {
		return name, nil
	}
	template, snapshot, err := d.Origin(ctx, name)
	if err == nil && snapshot != "" {
		err = invalid("%q is a snapshot, and a build begins with a template or an image", name)
	}
	return template, err
}

// translation is a Dockerfile under construction.
type translation struct {
	d        *Door
	project  string
	text     strings.Builder
	lines    int
	user     string
	contexts map[string]string
}

func (t *translation) line(format string, args ...any) {
	t.lines++
	fmt.Fprintf(&t.text, format+"\n", args...)
}

func (t *translation) step(s buildStep) error {
	arg := func(i int) string {
		if i < len(s.Args) {
			return s.Args[i]
		}
		return ""
	}
	switch s.Type {
	case "RUN":
		return t.run(arg(0), arg(1))
	case "ENV":
		return t.env(s.Args)
	case "WORKDIR", "USER":
		if arg(0) == "" || strings.ContainsAny(arg(0), "\r\n") {
			return invalid("it wants one argument, of one line")
		}
		if s.Type == "USER" {
			t.user = arg(0)
		}
		t.line("%s %s", s.Type, arg(0))
		return nil
	case "COPY":
		return t.copy(s, arg)
	}
	return invalid("this server knows no such step")
}

// inJSON writes arguments in the exec form of Dockerfiles, on one line.
func inJSON(args ...string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(args)
	return strings.TrimSpace(b.String())
}

func (t *translation) run(command, user string) error {
	if command == "" {
		return invalid("there is no command")
	}
	if user != "" && user != t.user {
		t.line("USER %s", user)
		defer t.line("USER %s", t.user)
	}
	t.line("RUN %s", inJSON("/bin/bash", "-l", "-c", command))
	return nil
}

var quoteEnv = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (t *translation) env(args []string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return invalid("it wants names and values in turns")
	}
	for pair := range slices.Chunk(args, 2) {
		if strings.ContainsAny(pair[0], " =\"'\\\r\n") || strings.ContainsAny(pair[1], "\r\n") {
			return invalid("%q cannot be set: neither names with spaces nor values of several lines can", pair[0])
		}
		t.line(`ENV %s="%s"`, pair[0], quoteEnv.Replace(pair[1]))
	}
	return nil
}

func (t *translation) copy(s buildStep, arg func(int) string) error {
	if arg(0) == "" || arg(1) == "" || !validHash(s.FilesHash) {
		return invalid("it wants a source, a destination and the hash of the files")
	}
	id := t.d.builds.file(t.project, s.FilesHash)
	if id == "" {
		return invalid("its files were not uploaded, or that was long ago")
	}
	name := "files-" + s.FilesHash
	t.contexts[name] = id
	owner := arg(2)
	if owner == "" {
		owner = t.user
	}
	options := fmt.Sprintf("--from=%s --chown=%s", name, owner)
	if arg(3) != "" {
		options += " --chmod=" + arg(3)
	}
	if strings.ContainsAny(owner+arg(3), " \t\r\n") {
		return invalid("neither an owner nor a mode has spaces")
	}
	source, to := arg(0), arg(1)
	if i := strings.IndexAny(source, globs); i >= 0 {
		// The upload has what the pattern matches and nothing else, and the destination is a
		// folder, also for a single file.
		source, to = cmp.Or(source[:strings.LastIndexByte(source[:i], '/')+1], "."), strings.TrimSuffix(to, "/")+"/"
	}
	t.line("COPY %s %s", options, inJSON(source, to))
	return nil
}

// globs are the characters of patterns that E2B's clients resolve before they upload.
const globs = "*?["
