package bothy

import (
	"context"
	"io"
	"time"
)

// BuildState is the state of a build.
type BuildState string

// The states of a build.
const (
	BuildQueued    BuildState = "queued"
	BuildRunning   BuildState = "running"
	BuildSucceeded BuildState = "succeeded"
	BuildFailed    BuildState = "failed"
	BuildCancelled BuildState = "cancelled"
)

// Ended reports whether the build has reached its end.
func (s BuildState) Ended() bool {
	return s == BuildSucceeded || s == BuildFailed || s == BuildCancelled
}

// BuildSecret is what a command may see while it runs, by RUN --mount=type=secret. It is
// in no layer, cache or log.
type BuildSecret struct {
	ID    string `json:"id"`
	Value string `json:"value"`
}

// RegistryLogin is who fetches images from a registry. Like a secret it is kept nowhere but
// with the build that waits.
type RegistryLogin struct {
	// Host is the registry's host, with its port if that is not the default.
	Host     string `json:"host"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// BuildRequest asks for a template that is made from a Dockerfile.
type BuildRequest struct {
	Name string `json:"name"`
	// Dockerfile is its text; empty means the file of that name in the context.
	Dockerfile string `json:"dockerfile,omitempty"`
	// File is the path of the Dockerfile in the context, where Dockerfile is empty.
	File string `json:"file,omitempty"`
	// ContextID is what UploadContext returned; empty means no files.
	ContextID string `json:"context_id,omitempty"`
	// Contexts are further uploads, under names by which COPY --from and mounts find them.
	Contexts map[string]string `json:"contexts,omitempty"`
	Args     map[string]string `json:"args,omitempty"`
	Target   string            `json:"target,omitempty"`
	Secrets  []BuildSecret     `json:"secrets,omitempty"`
	// Registries are logins for the images that FROM and COPY --from name.
	Registries []RegistryLogin `json:"registries,omitempty"`
	// Network is what commands may reach; nil means "restricted" with all presets.
	Network *Network `json:"network,omitempty"`
	// Engine runs the commands, in sandboxes of this size.
	Engine   string  `json:"engine,omitempty"`
	CPU      float64 `json:"cpu,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
	DiskMB   int     `json:"disk_mb,omitempty"`
	// TimeoutSeconds bounds each command; 0 means DefaultBuildTimeoutSeconds.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
	// NoCache runs every step again.
	NoCache bool `json:"no_cache,omitempty"`
	// ShellOnFailure leaves a sandbox in the state before the command that failed.
	ShellOnFailure bool `json:"shell_on_failure,omitempty"`
	// Start is a program that runs already in new sandboxes.
	Start *TemplateStart `json:"start,omitempty"`
}

// TemplateStart is a program that is started when a template is built, and runs in every
// sandbox that is made from it.
type TemplateStart struct {
	// Command is what sh runs in the background.
	Command string `json:"command"`
	// User and Cwd are who runs it and where; those of other commands when empty.
	User string `json:"user,omitempty"`
	Cwd  string `json:"cwd,omitempty"`
	// Ready says when it may be used; at once when nil.
	Ready *TemplateReady `json:"ready,omitempty"`
	// TimeoutSeconds bounds the wait; 0 means DefaultStartTimeoutSeconds.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
	// CPU, MemoryMB and DiskMB are the size of the sandboxes; that of a request which names
	// none when zero.
	CPU      float64 `json:"cpu,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
	DiskMB   int     `json:"disk_mb,omitempty"`
}

// TemplateReady says when a program is ready, in one way: something listens on a port, a URL
// answers with a status below 400, a file exists, or a command succeeds.
type TemplateReady struct {
	Port    int    `json:"port,omitempty"`
	URL     string `json:"url,omitempty"`
	File    string `json:"file,omitempty"`
	Command string `json:"command,omitempty"`
}

// DefaultStartTimeoutSeconds is how long a started program may take to be ready.
const DefaultStartTimeoutSeconds = 60

// DefaultBuildTimeoutSeconds bounds one command of a build that does not say otherwise.
const DefaultBuildTimeoutSeconds = 3600

// BuildKey is the key of metadata that marks the sandboxes in which a build runs.
const BuildKey = "bothy.build"

// Build is one making of a template.
type Build struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	State     BuildState `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Steps counts the steps, Done those that are done, and Cached those of them that
	// were taken from an earlier build.
	Steps  int `json:"steps"`
	Done   int `json:"done"`
	Cached int `json:"cached"`
	// Warnings are about the Dockerfile.
	Warnings []string `json:"warnings,omitempty"`
	// Digest is that of the template's image, of a build that has succeeded.
	Digest string `json:"digest,omitempty"`
	// Code, Error and Hint say why a build failed.
	Code  Code   `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// SandboxID is that of the sandbox which ShellOnFailure has left.
	SandboxID string `json:"sandbox_id,omitempty"`

	ProjectID string `json:"-"`
}

// BuildContext is a folder that was uploaded for builds.
type BuildContext struct {
	ID        string `json:"id"`
	Files     int    `json:"files"`
	SizeBytes int64  `json:"size_bytes"`
}

// TemplateBuilder builds templates from Dockerfiles. Builds continue when their caller
// disconnects, and start over after a restart of the server. A request identical to
// that of a build in progress joins it.
type TemplateBuilder interface {
	// UploadContext keeps a tar, which may be compressed with gzip, for some hours.
	UploadContext(ctx context.Context, r io.Reader) (*BuildContext, error)
	StartBuild(ctx context.Context, req BuildRequest) (*Build, error)
	Build(ctx context.Context, id string) (*Build, error)
	// Builds lists the caller's, newest first.
	Builds(ctx context.Context) ([]*Build, error)
	// BuildLog calls fn for the events from a number on, and for new ones until the build
	// has ended. The last one has the template or the error.
	BuildLog(ctx context.Context, id string, from int64, fn func(n int64, e BuildEvent) error) error
	// CancelBuild ends a build that has not ended. Nothing of it is left but its log.
	CancelBuild(ctx context.Context, id string) (*Build, error)
}
