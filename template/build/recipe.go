// Package build holds the steps of templates, as plain data, and reads them
// from Dockerfiles. Recipes are run in sandboxes.
//
// Words are kept as written: variables such as $HOME depend on the environment
// of the image that a stage starts from, and are replaced when the step runs.
// Only the words of FROM, which can only use the ARGs before it, are replaced
// while reading.
package build

// A Recipe is one or more stages. The last is the template, unless a target was
// asked for; stages that the last one does not need are left out.
type Recipe struct {
	Stages   []Stage  `json:"stages"`
	Warnings []string `json:"warnings,omitempty"`
	// Escape is the character that takes the meaning of the next one away.
	Escape rune `json:"escape,omitempty"`
}

// A Stage is a root file system in the making.
type Stage struct {
	Name string `json:"name,omitempty"`
	// From is what the stage starts from: a template, a reference to an image, or
	// "scratch". If FromStage is set, it is an earlier stage instead.
	From      string `json:"from,omitempty"`
	FromStage *int   `json:"from_stage,omitempty"` // an index into Stages
	Line      int    `json:"line,omitempty"`
	Steps     []Step `json:"steps,omitempty"`
}

// Kind says what a step does.
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
)

// A Step is one change of the files or of the settings of a stage. Which fields
// are set depends on its kind.
type Step struct {
	Kind Kind `json:"kind"`
	Line int  `json:"line,omitempty"`
	// Text is the step as it was written, for people.
	Text string `json:"text,omitempty"`
	// Args are the command of run, entrypoint, cmd, shell and healthcheck, the
	// ports of expose, the paths of volume, or the one word of workdir, user and
	// stopsignal.
	Args []string `json:"args,omitempty"`
	// UseShell has the command given to the shell as one text.
	UseShell bool `json:"use_shell,omitempty"`
	// Files are the heredocs of run: what the command names them, and their text.
	Files []File `json:"files,omitempty"`
	// Mounts and Network are options of run.
	Mounts  []Mount `json:"mounts,omitempty"`
	Network string  `json:"network,omitempty"` // "none", or "" for the build's own policy
	// Pairs are those of env, label and arg, in order.
	Pairs []Pair `json:"pairs,omitempty"`
	// Copy is what copy and add move.
	Copy *Files `json:"copy,omitempty"`
	// Health has the options of healthcheck, in Go's notation of durations.
	Health map[string]string `json:"health,omitempty"`
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
	// Chomp takes the tabs off the beginning of each line.
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

// Files says what copy and add move and how.
type Files struct {
	Sources []string `json:"sources,omitempty"`
	Inline  []File   `json:"inline,omitempty"`
	Dest    string   `json:"dest"`
	// From is what the sources are in: "" for the context, the name or the number
	// of an earlier stage, a template, or a reference to an image.
	From  string `json:"from,omitempty"`
	Chown string `json:"chown,omitempty"`
	Chmod string `json:"chmod,omitempty"`
	Link  bool   `json:"link,omitempty"`
}
