package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type templateInput struct {
	Name string `path:"name" doc:"The template's name."`
}

type tagInput struct {
	Name string `path:"name" doc:"The template's name."`
	Body bothy.TemplateTags
}

type pushInput struct {
	Name string `path:"name" doc:"The template's name."`
	Body bothy.TemplatePush
}

type sbomInput struct {
	Name   string `path:"name" doc:"The template's name."`
	Format string `query:"format" enum:"spdx,cyclonedx" default:"spdx" doc:"SPDX 2.3 or CycloneDX 1.6."`
}

type buildInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Body   bothy.TemplateBuild
}

func (s *handlers) registerTemplates() {
	svc := s.services.Templates
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-templates", Method: http.MethodGet, Path: "/v1/templates", Tag: "Templates",
		Summary: "List templates", Scope: bothy.ScopeTemplatesRead,
	}, func(ctx context.Context, _ *openapi.Empty) (*openapi.Answer[openapi.Items[*bothy.Template]], error) {
		return many(svc.Templates(ctx))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-template", Method: http.MethodGet, Path: "/v1/templates/{name}", Tag: "Templates",
		Summary: "Get a template", Scope: bothy.ScopeTemplatesRead,
	}, func(ctx context.Context, in *templateInput) (*openapi.Answer[*bothy.Template], error) {
		return one(svc.Template(ctx, in.Name))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "build-template", Method: http.MethodPost, Path: "/v1/templates", Tag: "Templates",
		Summary: "Build a template", Scope: bothy.ScopeTemplatesWrite, Status: http.StatusCreated,
		Text: "From an image, or the built-in template with that name. Answers with the template when it is built; " +
			"with `Accept: text/event-stream`, progress comes as events and the last one has the template.",
		Returns: []middleware.Form{middleware.As[bothy.Template]("application/json"), middleware.As[bothy.BuildEvent](middleware.EventsType)},
	}, func(ctx context.Context, in *buildInput) (*openapi.Response, error) {
		if middleware.WantsEvents(in.Accept) {
			return s.buildStream(in), nil
		}
		t, err := svc.BuildTemplate(ctx, in.Body, func(bothy.BuildEvent) {})
		if err != nil {
			return nil, err
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusCreated, t) }), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "tag-template", Method: http.MethodPost, Path: "/v1/templates/{name}/tags", Tag: "Templates",
		Summary: "Tag a template", Scope: bothy.ScopeTemplatesWrite,
		Text: "Gives a template of the project more tags and answers with the template under each of them. A tag that another image " +
			"had moves to this one; sandboxes and snapshots made from the other image stay as they are.",
	}, func(ctx context.Context, in *tagInput) (*openapi.Answer[openapi.Items[*bothy.Template]], error) {
		return many(svc.TagTemplate(ctx, in.Name, in.Body.Tags))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "push-template", Method: http.MethodPost, Path: "/v1/templates/{name}/push", Tag: "Templates",
		Summary: "Push a template to a registry", Scope: bothy.ScopeTemplatesWrite,
		Text: "Writes the template's files and settings to a registry, as a single-layer image that any container engine can run, and " +
			"answers when it is there. Running processes of the template are not included.",
	}, func(ctx context.Context, in *pushInput) (*openapi.Answer[*bothy.PushedTemplate], error) {
		return one(svc.PushTemplate(ctx, in.Name, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-template-sbom", Method: http.MethodGet, Path: "/v1/sboms/{name}", Tag: "Templates",
		Summary: "List what is installed in a template", Scope: bothy.ScopeTemplatesRead,
		Text: "A software bill of materials: the packages that Debian's, Python's and Node's package managers have installed, with the URLs " +
			"that scanners use. The same template gives the same text.",
		Returns: []middleware.Form{middleware.As[map[string]any]("application/json")},
	}, func(ctx context.Context, in *sbomInput) (*openapi.Response, error) {
		text, err := svc.TemplateSBOM(ctx, in.Name, in.Format)
		return jsonText(text), err
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-template-provenance", Method: http.MethodGet, Path: "/v1/provenance/{name}", Tag: "Templates",
		Summary: "Show how a template was made", Scope: bothy.ScopeTemplatesRead,
		Text: "An in-toto statement with SLSA provenance 1.0: the Dockerfile and its arguments, except those that look like secrets, or the image or " +
			"sandbox that it was made from, with the digests of its inputs. It is what the server recorded, and is not signed.",
		Returns: []middleware.Form{middleware.As[map[string]any]("application/json")},
	}, func(ctx context.Context, in *templateInput) (*openapi.Response, error) {
		text, err := svc.TemplateProvenance(ctx, in.Name)
		return jsonText(text), err
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-template", Method: http.MethodDelete, Path: "/v1/templates/{name}", Tag: "Templates",
		Summary: "Delete a template", Scope: bothy.ScopeTemplatesWrite,
		Text: "Refused with `template_in_use` while a sandbox needs it.",
	}, func(ctx context.Context, in *templateInput) (*openapi.Empty, error) {
		return nil, svc.RemoveTemplate(ctx, in.Name)
	})
}

// jsonText answers with JSON that exists already.
func jsonText(text json.RawMessage) *openapi.Response {
	return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

// buildStream reports the progress of a build. The event with the template is sent exactly once,
// as the last one.
func (s *handlers) buildStream(in *buildInput) *openapi.Response {
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		s.streamEvents(w, r, r.Context(), func(ctx context.Context, send func(string, any) error) error {
			last := bothy.BuildEvent{Step: "done", Percent: 100}
			t, err := s.services.Templates.BuildTemplate(ctx, in.Body, func(e bothy.BuildEvent) {
				if e.Template != nil {
					last = e
					return
				}
				_ = send("", e) // the end of ctx ends the build if the caller has left
			})
			if err != nil {
				return err
			}
			last.Template = t
			return send("", last)
		})
	})
}
