package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type (
	buildStart struct {
		Body bothy.BuildRequest
	}
	buildID struct {
		ID string `path:"id" doc:"The build's id."`
	}
	buildLogInput struct {
		ID   string `path:"id" doc:"The build's id."`
		From int64  `query:"from" minimum:"0" doc:"The number of the first event to get. Each event's id is its number."`
	}
)

// registerBuilds adds the builds of templates from Dockerfiles.
func (s *handlers) registerBuilds() {
	svc := s.services.Builder
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "upload-build-context", Method: http.MethodPost, Path: "/v1/templates/contexts", Tag: "Templates", Raw: true,
		Summary: "Upload the files of a build", Scope: bothy.ScopeTemplatesWrite, Status: http.StatusCreated,
		Text: "The body is a tar, plain or compressed with gzip, bzip2, xz or zstd, of the folder that COPY and ADD take files from. It may hold files, " +
			"folders and symbolic links, at most a million, and 16 GB in total. The answer's `id` is for `context_id` of builds within the " +
			"next day; the same files have the same id. If the uploads of a project are larger than 16 GB together, the oldest are deleted.",
		Returns: []middleware.Form{middleware.As[bothy.BuildContext]("application/json")},
	}, func(context.Context, *openapi.Empty) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(r.Body) // the caller may not be finished with it
			body := &pacedReader{pace: pace{silence: s.archiveSilence}, c: http.NewResponseController(w), body: r.Body}
			c, err := svc.UploadContext(r.Context(), body)
			if err != nil {
				s.Fail(w, r, err)
				return
			}
			openapi.WriteJSON(w, http.StatusCreated, c)
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "start-build", Method: http.MethodPost, Path: "/v1/templates/builds", Tag: "Templates",
		Summary: "Build a template from a Dockerfile", Scope: bothy.ScopeTemplatesWrite, Status: http.StatusCreated,
		Text: "Answers immediately with the build, which continues in the background, even if its caller disconnects or the server is restarted. A request " +
			"identical to that of a build in progress returns that build. Every RUN is executed in a sandbox, under `network`.",
	}, func(ctx context.Context, in *buildStart) (*openapi.Answer[*bothy.Build], error) {
		return one(svc.StartBuild(ctx, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-builds", Method: http.MethodGet, Path: "/v1/templates/builds", Tag: "Templates",
		Summary: "List builds", Scope: bothy.ScopeTemplatesRead, Text: "Newest first. A project's last 1000 ended builds are kept for a week.",
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.Build]], error) {
		return many(svc.Builds(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-build", Method: http.MethodGet, Path: "/v1/templates/builds/{id}", Tag: "Templates",
		Summary: "Get a build", Scope: bothy.ScopeTemplatesRead,
	}, func(ctx context.Context, in *buildID) (*openapi.Answer[*bothy.Build], error) {
		return one(svc.Build(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "follow-build", Method: http.MethodGet, Path: "/v1/templates/builds/{id}/logs", Tag: "Templates",
		Summary: "Follow a build", Scope: bothy.ScopeTemplatesRead,
		Text: "The build's events from number `from` on, until it ends. The last event has the template, or " +
			"the error. Disconnecting does not stop the build; to resume reading, give the number after the last line received.",
		Returns: []middleware.Form{middleware.As[bothy.BuildEvent](middleware.EventsType)},
	}, func(_ context.Context, in *buildLogInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			s.streamEvents(w, r, r.Context(), func(ctx context.Context, send func(string, any) error) error {
				return svc.BuildLog(ctx, in.ID, in.From, func(n int64, e bothy.BuildEvent) error {
					return send(strconv.FormatInt(n, 10), e)
				})
			})
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "cancel-build", Method: http.MethodDelete, Path: "/v1/templates/builds/{id}", Tag: "Templates",
		Summary: "Cancel a build", Scope: bothy.ScopeTemplatesWrite, Status: http.StatusOK,
		Text: "Ends a build in progress: its sandboxes end, and no template is made. Its log is kept.",
	}, func(ctx context.Context, in *buildID) (*openapi.Answer[*bothy.Build], error) {
		return one(svc.CancelBuild(ctx, in.ID))
	})
}
