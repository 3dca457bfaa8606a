package mcp

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// maxBuildLog is how many of the last lines of a build's log a tool returns.
const maxBuildLog = 100

type templatesIn struct {
	Limit  int    `json:"limit,omitempty" jsonschema:"At most this many, 1 to 1000; 100 by default"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the previous answer"`
}

type buildIn struct {
	Name       string               `json:"name" jsonschema:"The template's name, with or without a tag, such as tools or team/app:v3"`
	Dockerfile string               `json:"dockerfile" jsonschema:"The Dockerfile's text; FROM a template such as python-3.12, or an image. The only files it can use are heredocs"`
	Args       map[string]string    `json:"args,omitempty" jsonschema:"Values of the Dockerfile's ARGs"`
	Target     string               `json:"target,omitempty" jsonschema:"The stage to build, instead of the last"`
	Start      *bothy.TemplateStart `json:"start,omitempty" jsonschema:"A program that is already running in every sandbox created from the template: command, and ready with one of port, url, file, command"`
	Network    bothy.Network        `json:"network,omitzero"`
	NoCache    bool                 `json:"no_cache,omitempty" jsonschema:"Run every step again"`
	Shell      bool                 `json:"shell_on_failure,omitempty" jsonschema:"If a command fails, leave a sandbox in the state before it for half an hour; the error names it"`
}

type buildID struct {
	BuildID string `json:"build_id" jsonschema:"The build's id"`
}

type buildOut struct {
	Build *bothy.Build `json:"build"`
	// Log is the tail of the build's output.
	Log []string `json:"log"`
}

type captureIn struct {
	SandboxID   string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Name        string `json:"name" jsonschema:"The template's name, with or without a tag, such as tools or team/app:v3"`
	Description string `json:"description,omitempty" jsonschema:"What the template is for"`
	Memory      bool   `json:"memory,omitempty" jsonschema:"Keep the running processes, too, not only the files"`
}

func (t tools) addTemplates() {
	add(t, reads, "list_templates", "List templates",
		"Lists what sandboxes can start from: the built-in templates and your own.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in templatesIn) ([]mcp.Content, bothy.Page[*bothy.Template], error) {
			limit, err := bounded("limit", in.Limit, 100, 1000)
			if err != nil {
				return nil, bothy.Page[*bothy.Template]{}, err
			}
			list, err := t.Templates.Templates(ctx)
			if err != nil {
				return nil, bothy.Page[*bothy.Template]{}, err
			}
			page, err := templatesAfter(list, in.Cursor, limit)
			return nil, page, err
		})
	add(t, adds, "build_template", "Build a template",
		"Starts building a template from a Dockerfile, and returns at once; get_build shows its progress. Every RUN is executed in a sandbox.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in buildIn) ([]mcp.Content, *bothy.Build, error) {
			req := bothy.BuildRequest{Name: in.Name, Dockerfile: in.Dockerfile, Args: in.Args, Target: in.Target, Start: in.Start, NoCache: in.NoCache, ShellOnFailure: in.Shell}
			if in.Network.Mode != "" {
				req.Network = &in.Network
			}
			b, err := t.Builder.StartBuild(ctx, req)
			return nil, b, err
		})
	add(t, reads, "get_build", "Show a build",
		"Shows the state of a build (queued, running, succeeded, failed, cancelled), why it failed, and the end of its log.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in buildID) ([]mcp.Content, buildOut, error) {
			b, err := t.Builder.Build(ctx, in.BuildID)
			if err != nil {
				return nil, buildOut{}, err
			}
			log, err := t.buildLog(ctx, b)
			return nil, buildOut{Build: b, Log: log}, err
		})
	add(t, adds, "create_template", "Make a template from a sandbox",
		"Makes a template from a sandbox that you have set up: new sandboxes start with its files, or with its running processes, too. The sandbox stays as it is.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in captureIn) ([]mcp.Content, *bothy.Template, error) {
			made, err := t.Capturer.CreateTemplate(ctx, in.SandboxID, bothy.TemplateCapture{Name: in.Name, Description: in.Description, Memory: in.Memory})
			return nil, made, err
		})
}

// templatesAfter returns the templates after the one that a cursor names, as many as fit.
func templatesAfter(list []*bothy.Template, cursor string, limit int) (page bothy.Page[*bothy.Template], err error) {
	if cursor != "" {
		at := slices.IndexFunc(list, func(x *bothy.Template) bool { return cursorOf(x) == cursor })
		if at < 0 {
			return page, bothy.Errorf(bothy.CodeInvalid, "cursor %q is none that this tool gave, or its template is gone", cursor).WithHint("List from the beginning.")
		}
		list = list[at+1:]
	}
	all := len(list)
	list = list[:min(limit, all)]
	page.Items = append([]*bothy.Template{}, list[:min(len(list), max(1, fitting(list)))]...)
	if n := len(page.Items); n < all {
		page.NextCursor = cursorOf(page.Items[n-1])
	}
	return page, nil
}

func cursorOf(x *bothy.Template) string { return x.Name + "@" + x.Digest }

// buildLogPatience is how long the log of an unfinished build is read.
const buildLogPatience = 500 * time.Millisecond

// buildLog returns the tail of a build's output so far.
func (t tools) buildLog(ctx context.Context, b *bothy.Build) ([]string, error) {
	log := []string{}
	ctx, cancel := context.WithTimeout(ctx, buildLogPatience)
	defer cancel()
	err := t.Builder.BuildLog(ctx, b.ID, 0, func(_ int64, e bothy.BuildEvent) error {
		text := e.Step
		if said := e.Message + e.Error; said != "" {
			text += ": " + said
		}
		if log = append(log, text); len(log) > maxBuildLog {
			log = log[1:]
		}
		return nil
	})
	// The log of an unfinished build does not end.
	if !b.State.Ended() && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return log, err
}
