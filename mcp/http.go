package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/bothy-dev/bothy"
)

const (
	// Path is the HTTP endpoint of the protocol.
	Path = "/api/sandboxes/mcp"
	// MetadataPath is where clients look for the authentication, by RFC 9728.
	MetadataPath = "/.well-known/oauth-protected-resource" + Path

	// callerKey is the key of a verified key's owner in auth.TokenInfo.
	callerKey = "bothy.caller"
	// originKey is the key of the request's origin.
	originKey = "bothy.origin"
	// requestKey is the key of the HTTP request's context.
	requestKey = "bothy.request"
	// maxBody limits a message, which may contain a whole file.
	maxBody = 32 << 20
	// sessionIdle is how long a client of the older revisions may be silent.
	sessionIdle = time.Hour
	// firstStateless is the first revision in which each request is
	// independent.
	firstStateless = "2026-07-28"
)

// Handler serves a server over HTTP to callers with a key. In the revisions that have sessions,
// a session belongs to the key that started it.
func Handler(s *mcp.Server, tokens bothy.TokenService, log *slog.Logger) http.Handler {
	o := mcp.StreamableHTTPOptions{
		Logger: log, SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
		// The middleware checks the Host header of every request.
		DisableLocalhostProtection: true,
	}
	always := func(*http.Request) *mcp.Server { return s }
	sessions := mcp.NewStreamableHTTPHandler(always, &o)
	o.Stateless, o.SessionTimeout = true, 0
	stateless := mcp.NewStreamableHTTPHandler(always, &o)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= firstStateless || r.Context().Value(aloneKey{}) != nil {
			stateless.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
	verify := verifier(tokens)
	return originChecked(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{
			ResourceMetadataURL: baseURL(r) + MetadataPath, AllowMissingExpiration: true,
		})(h).ServeHTTP(w, r)
	}))
}

type aloneKey struct{}

// Alone reports that a message of an older revision is in no session of this server's: another
// host of the cluster has the session, and this one the sandbox.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

// FailCall answers a call of a tool with an error that arose before the call reached a server, as
// the tool would. It reports whether the request was such a call; its body must have been read.
func FailCall(w http.ResponseWriter, r *http.Request, err error) bool {
	if r.GetBody == nil {
		return false
	}
	body, bodyErr := r.GetBody()
	if bodyErr != nil {
		return false
	}
	defer body.Close()
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.NewDecoder(body).Decode(&call) != nil || call.ID == nil || call.Method != "tools/call" {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"jsonrpc": "2.0", "id": call.ID,
		"result": map[string]any{"isError": true, "content": []map[string]string{{"type": "text", "text": failure(err).Error()}}},
	})
	return true
}

// Metadata serves the resource metadata of RFC 9728: keys are sent in the header, and are
// created with `bothy token create`, not by an authorization server.
func Metadata() http.Handler {
	scopes := make([]string, len(bothy.AllScopes))
	for i, s := range bothy.AllScopes {
		scopes[i] = string(s)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
			Resource: baseURL(r) + Path, ScopesSupported: scopes, BearerMethodsSupported: []string{"header"}, ResourceName: "Bothy sandboxes",
		}).ServeHTTP(w, r)
	})
}

// baseURL is the URL at which the client calls this server.
func baseURL(r *http.Request) string {
	if r.TLS != nil || bothy.OriginFrom(r.Context()).Scheme == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func verifier(tokens bothy.TokenService) auth.TokenVerifier {
	return func(ctx context.Context, key string, r *http.Request) (*auth.TokenInfo, error) {
		if len(r.Header.Values("Authorization")) > 1 { // other code may read another one
			return nil, fmt.Errorf("%w: more than one Authorization header was given", auth.ErrInvalidToken)
		}
		c, err := tokens.Authenticate(ctx, key)
		switch bothy.ErrorCode(err) {
		case "":
		case bothy.CodeUnauthenticated, bothy.CodeTokenExpired:
			return nil, errors.Join(auth.ErrInvalidToken, failure(err))
		default:
			return nil, err
		}
		scopes := make([]string, len(c.Scopes))
		for i, s := range c.Scopes {
			scopes[i] = string(s)
		}
		return &auth.TokenInfo{UserID: c.ProjectID + "/" + c.TokenID, Scopes: scopes, Extra: map[string]any{
			callerKey: c, originKey: bothy.OriginFrom(r.Context()), requestKey: r.Context(),
		}}, nil
	}
}

// originChecked refuses requests from web pages of other sites: browsers send the origin, and
// agents have none.
func originChecked(next http.Handler) http.Handler {
	same := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Reading is checked as well: a GET opens a stream here.
		if err := same.Check(asPost(r)); err != nil {
			http.Error(w, "requests from other sites' pages are refused", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func asPost(r *http.Request) *http.Request {
	c := *r
	c.Method = http.MethodPost
	return &c
}
