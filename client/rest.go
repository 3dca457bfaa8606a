package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// Templates is the server's bothy.TemplateService.
type Templates struct{ conn *conn }

func templatePath(name string) string { return "/v1/templates/" + url.PathEscape(name) }

// Templates implements bothy.TemplateService.
func (t *Templates) Templates(ctx context.Context) ([]*bothy.Template, error) {
	return items[*bothy.Template](ctx, t.conn, http.MethodGet, "/v1/templates", nil, nil)
}

// Template implements bothy.TemplateService.
func (t *Templates) Template(ctx context.Context, name string) (*bothy.Template, error) {
	return get[bothy.Template](ctx, t.conn, http.MethodGet, templatePath(name), nil, nil)
}

// BuildTemplate implements bothy.TemplateService.
func (t *Templates) BuildTemplate(ctx context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*bothy.Template, error) {
	var built *bothy.Template
	err := stream(ctx, t.conn, http.MethodPost, "/v1/templates", nil, req, func(e bothy.BuildEvent) error {
		if e.Template != nil {
			built = e.Template
		}
		if log != nil {
			log(e)
		}
		return nil
	})
	if err == nil && built == nil {
		err = t.conn.brokenOff(ctx, io.ErrUnexpectedEOF)
	}
	return built, err
}

// CreateTemplate implements bothy.TemplateCapturer.
func (t *Templates) CreateTemplate(ctx context.Context, sandboxID string, req bothy.TemplateCapture) (*bothy.Template, error) {
	return get[bothy.Template](ctx, t.conn, http.MethodPost, "/v1/sandboxes/"+url.PathEscape(sandboxID)+"/template", nil, req)
}

// TagTemplate implements bothy.TemplateService.
func (t *Templates) TagTemplate(ctx context.Context, name string, tags []string) ([]*bothy.Template, error) {
	return items[*bothy.Template](ctx, t.conn, http.MethodPost, templatePath(name)+"/tags", nil, bothy.TemplateTags{Tags: tags})
}

// PushTemplate implements bothy.TemplateService.
func (t *Templates) PushTemplate(ctx context.Context, name string, req bothy.TemplatePush) (*bothy.PushedTemplate, error) {
	return get[bothy.PushedTemplate](ctx, t.conn, http.MethodPost, templatePath(name)+"/push", nil, req)
}

// TemplateSBOM implements bothy.TemplateService.
func (t *Templates) TemplateSBOM(ctx context.Context, name, format string) (json.RawMessage, error) {
	var text json.RawMessage
	err := t.conn.call(ctx, http.MethodGet, "/v1/sboms/"+url.PathEscape(name), url.Values{"format": {format}}, nil, &text)
	return text, err
}

// TemplateProvenance implements bothy.TemplateService.
func (t *Templates) TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error) {
	var text json.RawMessage
	err := t.conn.call(ctx, http.MethodGet, "/v1/provenance/"+url.PathEscape(name), nil, nil, &text)
	return text, err
}

// RemoveTemplate implements bothy.TemplateService.
func (t *Templates) RemoveTemplate(ctx context.Context, name string) error {
	return t.conn.call(ctx, http.MethodDelete, templatePath(name), nil, nil, nil)
}

// Tokens is the server's bothy.TokenService, without Authenticate.
type Tokens struct{ conn *conn }

// Authenticate is not for clients: the server does it at every call.
func (t *Tokens) Authenticate(context.Context, string) (*bothy.Caller, error) {
	return nil, bothy.Errorf(bothy.CodeUnsupported, "a client cannot look behind a key").WithHint("The server does this by itself.")
}

// CreateToken implements bothy.TokenService.
func (t *Tokens) CreateToken(ctx context.Context, req bothy.TokenCreate) (*bothy.Token, error) {
	return get[bothy.Token](ctx, t.conn, http.MethodPost, "/v1/tokens", nil, req)
}

// Tokens implements bothy.TokenService.
func (t *Tokens) Tokens(ctx context.Context) ([]*bothy.Token, error) {
	return items[*bothy.Token](ctx, t.conn, http.MethodGet, "/v1/tokens", nil, nil)
}

// DeleteToken implements bothy.TokenService.
func (t *Tokens) DeleteToken(ctx context.Context, id string) error {
	return t.conn.call(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(id), nil, nil, nil)
}

// Events is the server's bothy.EventService.
type Events struct{ conn *conn }

// Events implements bothy.EventService.
func (e *Events) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	if f.Follow {
		return follow(ctx, e.conn, "/v1/events", eventQuery(f), fn)
	}
	for {
		q := eventQuery(f)
		q.Set("limit", "1000")
		p, err := get[bothy.Page[bothy.Event]](ctx, e.conn, http.MethodGet, "/v1/events", q, nil)
		if err != nil {
			return err
		}
		for _, ev := range p.Items {
			if err := fn(ev); err != nil {
				return err
			}
			f.Since = ev.ID
		}
		if p.NextCursor == "" {
			return nil
		}
	}
}

// LastEvent implements bothy.EventService.
func (e *Events) LastEvent(ctx context.Context) (int64, error) {
	p, err := get[bothy.Page[bothy.Event]](ctx, e.conn, http.MethodGet, "/v1/events", url.Values{"new": {"true"}}, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(p.NextCursor, 10, 64)
}

func eventQuery(f bothy.EventFilter) url.Values {
	q := url.Values{}
	if f.Since > 0 {
		q.Set("since", strconv.FormatInt(f.Since, 10))
	}
	if f.SandboxID != "" {
		q.Set("sandbox_id", f.SandboxID)
	}
	return q
}

// Network is the server's bothy.NetworkService.
type Network struct{ conn *conn }

// NetworkLog implements bothy.NetworkService.
func (n *Network) NetworkLog(ctx context.Context, id string, since time.Time, wait bool, fn func(bothy.NetworkDecision) error) error {
	q := url.Values{}
	setTime(q, "since", since)
	path := sandboxPath(id, "/network/log")
	if wait {
		return follow(ctx, n.conn, path, q, fn)
	}
	all, err := items[bothy.NetworkDecision](ctx, n.conn, http.MethodGet, path, q, nil)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}
