package ports

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// LinkRequest asks for a link to a port.
type LinkRequest struct {
	Port           int            `json:"port" minimum:"1" maximum:"65535" doc:"The TCP port inside the sandbox."`
	ExpiresSeconds int            `json:"expires_seconds,omitempty" minimum:"1" maximum:"604800" default:"3600" doc:"How long the link can be used. It ends before that with the key that makes it, and with its sandbox."`
	Kind           bothy.LinkKind `json:"kind,omitempty" enum:"browser,webhook,cdp" default:"browser" doc:"browser: opened in a browser, which keeps the link in a cookie. webhook: for programs; each request carries the link in its path, or in the header X-Bothy-Link. cdp: for clients of the Chrome DevTools Protocol; Chromium listens on the port."`
	KeepHost       bool           `json:"keep_host,omitempty" doc:"Pass the link's host name on in the header Host."`
}

type (
	linkInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body LinkRequest
	}
	linkRef struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Link string `path:"link" doc:"The link's id."`
	}
)

func (in *linkRef) AuditObject() string { return in.Link }

func (s *Ports) registerLinks() {
	const base = "/v1/sandboxes/{id}/links"
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-link", Method: http.MethodPost, Path: base, Tag: "Network",
		Summary: "Create a link to a port", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated, Secret: true,
		Text: "The link works without a key and gives access to the HTTP server on that port, including WebSockets. It ends when it expires " +
			"or is deleted, with its sandbox, and with the key that created it. One of the kind `browser` is opened in a browser, and after that " +
			"only pages of the same sandbox may send requests that change something, or open WebSockets. One of the kind `webhook` takes requests " +
			"with any method: append a path to its `url`, or send the part between `/_bothy/` and the next slash in the header X-Bothy-Link. " +
			"One of the kind `cdp` is the address of a browser in the sandbox, which must be running: Playwright, Puppeteer and others connect to its " +
			"`url` as it is, or to the same with `ws` in place of `http`. With a key, `/v1/sandboxes/{id}/cdp/{port}` is the same address.",
	}, func(ctx context.Context, in *linkInput) (*openapi.Answer[*bothy.Link], error) {
		return s.createLink(ctx, in)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-links", Method: http.MethodGet, Path: base, Tag: "Network",
		Summary: "List links to ports", Scope: bothy.ScopeSandboxesRead,
		Text: "Active links, newest first, without their `url`, which is shown only once.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[openapi.Items[*bothy.Link]], error) {
		if err := s.makesLinks(ctx, in.ID); err != nil {
			return nil, err
		}
		all, err := s.Links.Links(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return openapi.AnswerList(all), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-link", Revokes: true, Method: http.MethodDelete, Path: base + "/{link}", Tag: "Network",
		Summary: "Revoke a link", Scope: bothy.ScopeSandboxesWrite,
		Text: "It stops working, and connections made through it end within a second.",
	}, func(ctx context.Context, in *linkRef) (*openapi.Empty, error) {
		if err := s.makesLinks(ctx, in.ID); err != nil {
			return nil, err
		}
		return nil, s.Links.DeleteLink(ctx, in.ID, in.Link)
	})
}

// makesLinks returns an error if there are no links, for callers who may see the sandbox.
func (s *Ports) makesLinks(ctx context.Context, id string) error {
	if svc := s.Sandboxes; svc != nil {
		if _, err := svc.Get(ctx, id); err != nil {
			return err
		}
	}
	if len(s.LinkKey) == 0 || s.Links == nil {
		return bothy.Errorf(bothy.CodeUnsupported, "this server makes no links").WithHint("Use `bothy forward`.")
	}
	return nil
}

func (s *Ports) createLink(ctx context.Context, in *linkInput) (*openapi.Answer[*bothy.Link], error) {
	if err := s.makesLinks(ctx, in.ID); err != nil {
		return nil, err
	}
	t := Target{Sandbox: in.ID, Port: uint16(in.Body.Port)}
	if in.Body.Kind == bothy.LinkCDP {
		if _, err := s.cdpVersion(ctx, t); err != nil {
			return nil, err
		}
	}
	link, err := s.Links.CreateLink(ctx, in.ID, bothy.LinkCreate{
		Port: in.Body.Port, Kind: in.Body.Kind, KeepHost: in.Body.KeepHost, For: time.Duration(in.Body.ExpiresSeconds) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	token := s.signLink(t, link.Kind, link.ID)
	u := url.URL{Scheme: s.linkScheme(ctx), Host: s.linkHost(t), Path: "/"}
	switch link.Kind {
	case bothy.LinkWebhook:
		u.Path = LinkPath + token + "/"
	case bothy.LinkCDP: // not below a name of its own, for the clients resolve no names below localhost
		o := bothy.OriginFrom(ctx)
		u = url.URL{Scheme: o.Scheme, Host: o.Host, Path: LinkPath + token + cdpPrefix(t)}
	default:
		u.RawQuery = url.Values{LinkQuery: {token}}.Encode()
	}
	link.URL = u.String()
	return openapi.AnswerWith(link), nil
}

// linkScheme is https also if a trusted proxy terminates TLS, but not for
// *.localhost, which no proxy serves.
func (s *Ports) linkScheme(ctx context.Context) string {
	if !s.TLS && s.linkDomain() != "localhost" && bothy.OriginFrom(ctx).Scheme == "https" {
		return "https"
	}
	if s.TLS {
		return "https"
	}
	return "http"
}

var (
	linkLabel = regexp.MustCompile(`^[0-9]+-[a-z0-9]+(-bothy)?$`) // with the suffix for the outer protocol
	canonical = regexp.MustCompile(`^([1-9][0-9]{0,4})-([a-z0-9]+)$`)
)

// LinkTarget parses a host name of the form PORT-ID.DOMAIN. A port has only one name: others,
// such as 03000-ID or one with a trailing dot, would be another origin to a browser. For those
// it returns port 0, which can never be reached.
func (s *Ports) LinkTarget(hostport string) (t Target, below bool) {
	if s.proxy == nil || len(s.LinkKey) == 0 || s.Links == nil {
		return t, false
	}
	host := strings.ToLower(hostport)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	label, domain, _ := strings.Cut(host, ".")
	if strings.TrimRight(domain, ".") != s.linkDomain() || !linkLabel.MatchString(label) {
		return t, false
	}
	m := canonical.FindStringSubmatch(label)
	if m == nil || domain != s.linkDomain() {
		return t, true
	}
	port, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return t, true
	}
	return Target{Sandbox: m[2], Port: uint16(port)}, true
}

func (s *Ports) linkDomain() string {
	if s.LinkDomain == "" {
		return "localhost"
	}
	return strings.ToLower(s.LinkDomain)
}

func (s *Ports) linkHost(t Target) string {
	host := fmt.Sprintf("%d-%s.%s", t.Port, t.Sandbox, s.linkDomain())
	// With another domain and no TLS of our own, a proxy is addressed.
	tcp, ok := s.Addr().(*net.TCPAddr)
	if ok && (s.linkDomain() == "localhost" || s.TLS && tcp.Port != 443) {
		host = net.JoinHostPort(host, strconv.Itoa(tcp.Port))
	}
	return host
}

// signLink makes the text that proves a link: its id and a signature. The link is looked up only
// if the signature is right.
func (s *Ports) signLink(t Target, kind bothy.LinkKind, id string) string {
	mac := hmac.New(sha256.New, s.LinkKey)
	fmt.Fprintf(mac, "link 2\x00%s\x00%s\x00%s\x00%d", id, kind, t.Sandbox, t.Port)
	return id + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// openLink makes the request depend on the link that a text proves, if it does.
func (s *Ports) openLink(r *http.Request, t Target, kind bothy.LinkKind, token string) (*http.Request, error) {
	id, _, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(token), []byte(s.signLink(t, kind, id))) {
		return r, badLink(t)
	}
	info := middleware.RequestFrom(r.Context())
	link, release, err := s.Links.HoldLink(r.Context(), id, info.End)
	if err != nil {
		return r, err
	}
	info.OnRelease(release)
	info.Caller = &bothy.Caller{
		ProjectID: link.ProjectID, TokenID: link.TokenID, TokenName: link.TokenName, LinkID: link.ID,
		Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite},
	}
	ctx := context.WithValue(r.Context(), linkKey{}, link)
	return r.WithContext(bothy.WithCaller(ctx, info.Caller)), nil
}

type linkKey struct{}

// linkOf is the link that a request came with, or nil.
func linkOf(r *http.Request) *bothy.Link {
	link, _ := r.Context().Value(linkKey{}).(*bothy.Link)
	return link
}

// ProjectOf returns the project of the link or key with which a request for a port's own host
// name, or with a link for a browser, comes, or "". The request stays as it is.
func (s *Ports) ProjectOf(r *http.Request) string {
	t, named := s.LinkTarget(r.Host)
	browser := false
	if !named {
		t, browser = s.CDPTarget(r)
	}
	if !named && !browser || t.Port == 0 || s.Links == nil {
		return ""
	}
	r = r.Clone(r.Context())
	webhook := TakeLink(r)
	var err error
	if browser {
		r, err = s.openLink(r, t, bothy.LinkCDP, webhook)
	} else if token := r.URL.Query().Get(LinkQuery); token != "" && webhook == "" {
		r, err = s.openLink(r, t, bothy.LinkBrowser, token)
	} else {
		r, err = s.admitToPort(r, t, webhook)
	}
	if err != nil {
		return ""
	}
	return middleware.RequestFrom(r.Context()).Caller.ProjectID
}

func badLink(t Target) error {
	return bothy.Errorf(bothy.CodeUnauthenticated, "this link has ended, was changed, or is for something else").
		WithHint("Make a new one: POST /v1/sandboxes/%s/links.", t.Sandbox)
}
