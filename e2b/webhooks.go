package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

func (d *Door) webhookRoutes() []Route {
	return []Route{
		route("POST /events/webhooks", "create-webhook", bothy.ScopeAdmin, d.createWebhook),
		route("GET /events/webhooks", "list-webhooks", bothy.ScopeAdmin, d.listWebhooks),
		route("GET /events/webhooks/{webhookID}", "get-webhook", bothy.ScopeAdmin, d.getWebhook),
		route("PATCH /events/webhooks/{webhookID}", "update-webhook", bothy.ScopeAdmin, d.updateWebhook),
		route("DELETE /events/webhooks/{webhookID}", "delete-webhook", bothy.ScopeAdmin, d.deleteWebhook),
	}
}

type webhookInfo struct {
	ID        string    `json:"id"`
	TeamID    string    `json:"teamId"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Enabled   bool      `json:"enabled"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"`
}

func showWebhook(h *bothy.Webhook) webhookInfo {
	i := webhookInfo{ID: h.ID, TeamID: h.ProjectID, Name: h.Name, CreatedAt: h.CreatedAt, Enabled: h.Enabled, URL: h.URL, Events: []string{}}
	for _, e := range h.Events {
		if t := lifecycleType(e); t != "" {
			i.Events = append(i.Events, t)
		}
	}
	return i
}

// ourTypes are the types that a client named.
func ourTypes(names []string) ([]string, error) {
	types := []string{}
	for _, n := range names {
		ours := ourType(n)
		if ours == "" {
			return nil, invalid("events: there are no events of the type %q", n)
		}
		types = append(types, ours)
	}
	if len(types) == 0 {
		return nil, invalid("events: name at least one type, such as sandbox.lifecycle.created")
	}
	return types, nil
}

func (d *Door) createWebhook(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Name    string   `json:"name"`
		URL     string   `json:"url"`
		Enabled *bool    `json:"enabled"`
		Events  []string `json:"events"`
		Secret  string   `json:"signatureSecret"`
	}{}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Name == "" || in.Secret == "" {
		return invalid("name and signatureSecret are needed")
	}
	types, err := ourTypes(in.Events)
	if err != nil {
		return err
	}
	h, err := d.Webhooks.CreateWebhook(r.Context(), bothy.WebhookCreate{
		Name: in.Name, URL: in.URL, Events: types, Secret: in.Secret, Format: bothy.WebhookE2B,
		Disabled: in.Enabled != nil && !*in.Enabled,
	})
	if err != nil {
		return err
	}
	d.Server.Note(r, "", h.ID, "")
	return reply(w, http.StatusCreated, showWebhook(h))
}

func (d *Door) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	all, err := d.Webhooks.Webhooks(r.Context())
	if err != nil {
		return err
	}
	shown := []webhookInfo{}
	for _, h := range all {
		if h.Format == bothy.WebhookE2B {
			shown = append(shown, showWebhook(h))
		}
	}
	return reply(w, http.StatusOK, shown)
}

func (d *Door) getWebhook(w http.ResponseWriter, r *http.Request) error {
	h, err := d.Webhooks.Webhook(r.Context(), r.PathValue("webhookID"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, showWebhook(h))
}

func (d *Door) updateWebhook(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name    *string   `json:"name"`
		URL     *string   `json:"url"`
		Enabled *bool     `json:"enabled"`
		Events  *[]string `json:"events"`
		Secret  *string   `json:"signatureSecret"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	u := bothy.WebhookUpdate{Name: in.Name, URL: in.URL, Enabled: in.Enabled, Secret: in.Secret}
	if in.Events != nil {
		types, err := ourTypes(*in.Events)
		if err != nil {
			return err
		}
		u.Events = &types
	}
	h, err := d.Webhooks.UpdateWebhook(r.Context(), r.PathValue("webhookID"), u)
	if err != nil {
		return err
	}
	d.Server.Note(r, "", h.ID, "")
	return reply(w, http.StatusOK, showWebhook(h))
}

func (d *Door) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("webhookID")
	if err := d.Webhooks.DeleteWebhook(r.Context(), id); err != nil {
		return err
	}
	d.Server.Note(r, "", id, "")
	w.WriteHeader(http.StatusOK)
	return nil
}

// delivered is an event as E2B's service sends it. Its documentation spells these names as its
// API does, but the service uses underscores, so receivers look for either.
type delivered struct {
	lifecycleEvent
	Category      string         `json:"event_category"`
	Label         string         `json:"event_label"`
	SnakeData     map[string]any `json:"event_data"`
	SnakeBuild    string         `json:"sandbox_build_id"`
	SnakeRun      string         `json:"sandbox_execution_id"`
	SnakeSandbox  string         `json:"sandbox_id"`
	SnakeTeam     string         `json:"sandbox_team_id"`
	SnakeTemplate string         `json:"sandbox_template_id"`
}

// labels are the older names of the types of events.
var labels = map[string]string{
	"created": "create", "updated": "update", "paused": "pause", "resumed": "resume", "checkpointed": "checkpoint", "killed": "kill",
}

// WebhookEncoder encodes events as E2B's service does.
func WebhookEncoder(sandboxes getter) func(context.Context, *bothy.Webhook, string, bothy.Event, time.Time) ([]byte, http.Header, error) {
	return func(ctx context.Context, h *bothy.Webhook, secret string, e bothy.Event, sent time.Time) ([]byte, http.Header, error) {
		l := describe(e, known(ctx, sandboxes, e))
		if e.Type == bothy.EventWebhookTest {
			l.Type = e.Type
		}
		if l.Type == "" {
			return nil, nil, nil
		}
		last := l.Type[strings.LastIndex(l.Type, ".")+1:]
		body, err := json.Marshal(delivered{
			lifecycleEvent: l, Category: "lifecycle", Label: labels[last], SnakeData: l.EventData, SnakeBuild: l.BuildID,
			SnakeRun: l.ExecutionID, SnakeSandbox: l.SandboxID, SnakeTeam: l.TeamID, SnakeTemplate: l.TemplateID,
		})
		if err != nil {
			return nil, nil, err
		}
		sum := sha256.Sum256(append([]byte(secret), body...))
		header := http.Header{}
		header.Set("E2b-Webhook-Id", h.ID)
		header.Set("E2b-Delivery-Id", l.ID+"-"+sent.UTC().Format("20060102T150405.000000"))
		header.Set("E2b-Signature-Version", "v1")
		header.Set("E2b-Signature", base64.RawStdEncoding.EncodeToString(sum[:]))
		return body, header, nil
	}
}
