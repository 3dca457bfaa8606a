package bothy

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"time"
)

// ManifestVersion is the version of the template manifest's format.
const ManifestVersion = 1

// Template is what a sandbox starts from: a read-only image of a root file system, of which
// this is what clients see.
type Template struct {
	Version     int       `json:"version"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Digest      string    `json:"digest"` // sha256:<hex> of rootfs.erofs
	SizeBytes   int64     `json:"size_bytes"`
	CreatedAt   time.Time `json:"created_at"`
	// Env is set for every command.
	Env map[string]string `json:"env,omitempty"`
	// Cwd is where commands start; DefaultCwd when empty.
	Cwd string `json:"cwd,omitempty"`
	// User runs commands; DefaultUser when empty.
	User string `json:"user,omitempty"`
	// Image is what the template's image says about running it, for templates built from
	// a Dockerfile.
	Image *ImageConfig `json:"image,omitempty"`
	// Entrypoint is the command of the image that the template was made from. It
	// is kept for people: nothing starts by itself in a sandbox.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// Source says what the template was made from, such as "debian:bookworm"
	// or an image reference with its digest.
	Source string `json:"source,omitempty"`
	// Packages are the versions of what matters inside, for people.
	Packages map[string]string `json:"packages,omitempty"`
	// Languages are those that run_code offers, such as "python".
	Languages []string `json:"languages,omitempty"`

	// Warm are the languages whose interpreters run already when a sandbox
	// starts.
	Warm []string `json:"warm,omitempty"`

	// Recipe identifies how this build of Bothy makes a built-in template. A
	// template made by another recipe is rebuilt when it is built again.
	Recipe string `json:"recipe,omitempty"`

	// Tag is the tag of the name, if it is not "latest".
	Tag string `json:"tag,omitempty"`
	// Project owns the template; empty means that it is for all.
	Project string `json:"project,omitempty"`

	// Memory is set if sandboxes start with the processes of the one that the template
	// was made from.
	Memory *TemplateMemory `json:"memory,omitempty"`

	// Start is the program that is already running in new sandboxes, if the build started
	// one.
	Start *TemplateStart `json:"start,omitempty"`
}

// TemplateOrigin is what the provenance of a template says.
type TemplateOrigin struct {
	// Kind is how the template was made.
	Kind OriginKind `json:"kind"`
	// ID is that of the build, or of the sandbox.
	ID string `json:"id,omitempty"`
	// Bothy is the version of the server that made it.
	Bothy string `json:"bothy,omitempty"`
	// Parameters are what was requested, and Settings what else the result may depend on.
	Parameters map[string]any `json:"parameters"`
	Settings   map[string]any `json:"settings,omitempty"`
	// Materials are what it was made from.
	Materials []Material `json:"materials,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// OriginKind is a way of making templates.
type OriginKind string

// The ways of making templates.
const (
	FromDockerfile OriginKind = "dockerfile"
	FromImage      OriginKind = "image"
	FromSandbox    OriginKind = "sandbox"
	FromBuiltIn    OriginKind = "built-in"
)

// Material is an input of a build, known by its content.
type Material struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // sha256:<hex>
}

// ImageConfig is what the image of a container says about running it. Sandboxes use none
// of it except the environment, the user and the folder, which are the template's.
type ImageConfig struct {
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Shell        []string          `json:"shell,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	ExposedPorts []string          `json:"exposed_ports,omitempty"`
	Volumes      []string          `json:"volumes,omitempty"`
	StopSignal   string            `json:"stop_signal,omitempty"`
	Healthcheck  *Healthcheck      `json:"healthcheck,omitempty"`
	OnBuild      []string          `json:"on_build,omitempty"`
}

// Healthcheck is a command that tells whether a container works.
type Healthcheck struct {
	Test               []string `json:"test"`
	IntervalSeconds    float64  `json:"interval_seconds,omitempty"`
	TimeoutSeconds     float64  `json:"timeout_seconds,omitempty"`
	StartPeriodSeconds float64  `json:"start_period_seconds,omitempty"`
	Retries            int      `json:"retries,omitempty"`
}

// TemplateMemory describes a template's running processes, which came from a sandbox.
// They run only on the same engine and with the same size.
type TemplateMemory struct {
	SnapshotID string `json:"snapshot_id"`
	// BaseDigest is that of the image that the processes run on, which stays for as long as
	// the template does.
	BaseDigest string  `json:"base_digest,omitempty"`
	SizeBytes  int64   `json:"size_bytes"`
	Engine     string  `json:"engine"`
	CPU        float64 `json:"cpu"`
	MemoryMB   int     `json:"memory_mb"`
	DiskMB     int     `json:"disk_mb"`
}

// TemplateCapture says what becomes of a sandbox as a template.
type TemplateCapture struct {
	// Name may have a tag: NAME:TAG.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Memory keeps the processes that run, too.
	Memory bool `json:"memory,omitempty"`
}

// TemplateCapturer makes templates of sandboxes.
type TemplateCapturer interface {
	// CreateTemplate makes a template from a running or paused sandbox, and leaves the
	// sandbox as it is.
	CreateTemplate(ctx context.Context, sandboxID string, req TemplateCapture) (*Template, error)
}

// TemplateService finds and builds templates.
type TemplateService interface {
	// Templates lists what the caller may use, by name: its project's and those for all.
	Templates(ctx context.Context) ([]*Template, error)
	// Template finds one by a TemplateRef: the project's own, then those for all.
	// CodeTemplateNotFound names what there is.
	Template(ctx context.Context, name string) (*Template, error)
	// BuildTemplate makes a template and calls log for every line of progress.
	BuildTemplate(ctx context.Context, req TemplateBuild, log func(BuildEvent)) (*Template, error)
	// TagTemplate gives one of the caller's own templates more tags, and returns it
	// under each of them. A tag moves from the image that had it; what runs from that
	// image stays as it is.
	TagTemplate(ctx context.Context, name string, tags []string) ([]*Template, error)
	// PushTemplate writes a template to a registry, as an image.
	PushTemplate(ctx context.Context, name string, req TemplatePush) (*PushedTemplate, error)
	// TemplateSBOM lists what package managers installed in a template, as JSON in one of
	// the SBOM formats.
	TemplateSBOM(ctx context.Context, name, format string) (json.RawMessage, error)
	// TemplateProvenance says how a template was made, as an in-toto statement with the
	// predicate of SLSA 1.0, in JSON.
	TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error)
	// RemoveTemplate deletes a name with all its tags, or, if a tag is given, only
	// that tag. The error is CodeTemplateInUse while a sandbox or a snapshot needs
	// what would be lost.
	RemoveTemplate(ctx context.Context, name string) error
}

// MaxTemplateTags is how many tags one call gives.
const MaxTemplateTags = 20

// TemplateTags are tags to give to a template.
type TemplateTags struct {
	Tags []string `json:"tags"`
}

// TemplatePush says where an image of a template goes.
type TemplatePush struct {
	Reference  string          `json:"reference"`
	Registries []RegistryLogin `json:"registries,omitempty"`
}

// PushedTemplate is an image in a registry that was made of a template.
type PushedTemplate struct {
	// Reference has the digest.
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"size_bytes"`
}

// The formats in which the packages of a template are listed.
const (
	SBOMSPDX      = "spdx"
	SBOMCycloneDX = "cyclonedx"
)

// TemplateBuild says how to make a template: from an image, or, without one, the
// built-in template of that name.
type TemplateBuild struct {
	Name  string `json:"name"`
	Image string `json:"image,omitempty"` // OCI reference, layout folder or docker-save tar
	// Force builds again even if the template exists.
	Force bool `json:"force,omitempty"`
}

// BuildEvent is one step of progress of a build.
type BuildEvent struct {
	Step    string  `json:"step"`
	Message string  `json:"message,omitempty"`
	Percent float64 `json:"percent,omitempty"`
	// Template is set on the last event of a build that succeeded.
	Template *Template `json:"template,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// DefaultTag is the tag of a template's name that has none.
const DefaultTag = "latest"

// TemplateRef names a template: NAME, NAME:TAG, NAME@DIGEST or DIGEST.
type TemplateRef struct {
	Name   string // such as "tools" or "team/app"; empty where only a digest was given
	Tag    string // DefaultTag where none was given
	Digest string // "sha256:<hex>" or empty
}

// Compiled when they are needed: every sandbox's processes link this.
var (
	templateName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,3}$`)
	})
	templateTag    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`) })
	templateDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
)

// TagOrDefault is the template's tag.
func (t *Template) TagOrDefault() string {
	if t.Tag == "" {
		return DefaultTag
	}
	return t.Tag
}

// Ref is the template's name with its tag.
func (t *Template) Ref() string { return TemplateRef{Name: t.Name, Tag: t.TagOrDefault()}.String() }

// ValidTemplateName reports whether s can name a template, with a tag or without.
func ValidTemplateName(s string) bool {
	r, err := ParseTemplateRef(s)
	return err == nil && r.Digest == ""
}

// ParseTemplateRef parses a caller's reference to a template.
func ParseTemplateRef(s string) (TemplateRef, error) {
	r := TemplateRef{Tag: DefaultTag}
	rest := s
	if templateDigest().MatchString(s) {
		r.Digest, rest = s, ""
		return r, nil
	}
	rest, digest, ok := strings.Cut(rest, "@")
	if ok {
		if !templateDigest().MatchString(digest) {
			return r, invalidTemplateRef(s)
		}
		r.Digest = digest
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		rest, r.Tag = rest[:i], rest[i+1:]
	}
	if len(s) > 200+len(digest) || !templateName().MatchString(rest) || !templateTag().MatchString(r.Tag) || rest == "sha256" {
		return r, invalidTemplateRef(s)
	}
	r.Name = rest
	return r, nil
}

// String is the reference without what goes without saying.
func (r TemplateRef) String() string {
	s := r.Name
	if r.Name != "" && r.Tag != DefaultTag && r.Digest == "" {
		s += ":" + r.Tag
	}
	if r.Digest == "" {
		return s
	}
	if s != "" {
		s += "@"
	}
	return s + r.Digest
}

func invalidTemplateRef(s string) error {
	return Errorf(CodeInvalid, "%q cannot be the name of a template", s).
		WithHint("Use up to 63 small letters, digits, dots, dashes and underscores, beginning with a letter or a digit; " +
			"up to four such parts with / between them, and :TAG or @sha256:DIGEST behind.")
}
