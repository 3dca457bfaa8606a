// Package build builds templates from Dockerfiles. A recipe is the steps of a template as plain
// data; its commands run in sandboxes.
//
// Words are kept as written: variables such as $HOME depend on the environment of the image
// that a stage starts from, and are replaced when the step runs. Only the words of FROM, which
// can only use the ARGs before it, are replaced while reading.
package build

// A Recipe is one or more stages. The last one is the template, unless a target was requested.
// Stages that it does not need are omitted.
type Recipe struct {
	Stages   []Stage  `json:"stages"`
	Warnings []string `json:"warnings,omitempty"`
	// Escape is the escape character.
	Escape rune `json:"escape,omitempty"`
}

// A Stage builds one root file system.
type Stage struct {
	Name string `json:"name,omitempty"`
	// From is what the stage starts from: a template, a reference to an image, or
	// "scratch". If FromStage is set, it is an earlier stage instead.
	From      string `json:"from,omitempty"`
	FromStage *int   `json:"from_stage,omitempty"` // an index into Stages
	Line      int    `json:"line,omitempty"`
	// Later is the line of a later stage that has the name in From, or 0.
	Later int    `json:"later,omitempty"`
	Steps []Step `json:"steps,omitempty"`
}

// Kind is the kind of a step.
type Kind string

// The kinds of steps.
const (
	Run         Kind = "run"
	Copy        Kind = "copy"
	Add         Kind = "add"
	Env         Kind = "env"
	Arg         Kind = "arg"
	Workdir     Kind = "workdir"
	User        Kind = "user"
	Label       Kind = "label"
	Expose      Kind = "expose"
	Entrypoint  Kind = "entrypoint"
	Cmd         Kind = "cmd"
	Shell       Kind = "shell"
	Volume      Kind = "volume"
	Healthcheck Kind = "healthcheck"
	StopSignal  Kind = "stopsignal"
	Onbuild     Kind = "onbuild"
)

// A Step changes the files or the settings of a stage. Which fields are set depends on its
// kind.
type Step struct {
	Kind Kind `json:"kind"`
	Line int  `json:"line,omitempty"`
	// Text is the step as written, for people.
	Text string `json:"text,omitempty"`
	// Args are the command of run, entrypoint, cmd, shell and healthcheck, the
	// ports of expose, the paths of volume, the instruction of onbuild, or the one word of
	// workdir, user and stopsignal.
	Args []string `json:"args,omitempty"`
	// UseShell passes the command to the shell as one string.
	UseShell bool `json:"use_shell,omitempty"`
	// Files are the heredocs of run.
	Files []File `json:"files,omitempty"`
	// Mounts and Network are options of run.
	Mounts  []Mount `json:"mounts,omitempty"`
	Network string  `json:"network,omitempty"` // "none", or "" for the build's own policy
	// Pairs are the pairs of env, label and arg, in order.
	Pairs []Pair `json:"pairs,omitempty"`
	// Copy is what copy and add copy.
	Copy *Files `json:"copy,omitempty"`
	// Health are the options of healthcheck, in Go's syntax for durations.
	Health map[string]string `json:"health,omitempty"`
}

// items counts the words of a step.
func (s *Step) items() int {
	n := len(s.Args) + len(s.Files) + len(s.Mounts) + len(s.Pairs)
	if s.Copy != nil {
		n += len(s.Copy.Sources) + len(s.Copy.Inline) + len(s.Copy.Exclude)
	}
	return n
}

// A Pair is a name with a value; Value is nil for an arg without a default.
type Pair struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
}

// A File is a heredoc.
type File struct {
	Name   string `json:"name"`
	Data   string `json:"data"`
	Expand bool   `json:"expand,omitempty"` // whether variables in it are replaced
	// Chomp removes leading tabs from each line.
	Chomp bool `json:"chomp,omitempty"`
}

// A Mount exists while a command runs, and never in the image.
type Mount struct {
	Type     string `json:"type"` // cache, secret, bind or tmpfs
	ID       string `json:"id,omitempty"`
	Source   string `json:"source,omitempty"`
	From     string `json:"from,omitempty"`
	Target   string `json:"target,omitempty"`
	Env      string `json:"env,omitempty"` // a secret as a variable
	Sharing  string `json:"sharing,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Required bool   `json:"required,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Mode     uint64 `json:"mode,omitempty"`
	UID      uint64 `json:"uid,omitempty"`
	GID      uint64 `json:"gid,omitempty"`
}

// Files are the sources, the destination and the options of copy and add.
type Files struct {
	Sources []string `json:"sources,omitempty"`
	Inline  []File   `json:"inline,omitempty"`
	Dest    string   `json:"dest"`
	// From is where the sources are: "" for the context, the name or number of an earlier
	// stage, a template, or a reference to an image.
	From  string `json:"from,omitempty"`
	Chown string `json:"chown,omitempty"`
	Chmod string `json:"chmod,omitempty"`
	Link  bool   `json:"link,omitempty"`
	// Exclude are patterns of what is not copied, and Parents keeps the folders above the sources.
	Exclude []string `json:"exclude,omitempty"`
	Parents bool     `json:"parents,omitempty"`
}
