package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// The two tokens that a client gets for a sandbox. Each is made from the id of the key that
// requested it, ends with that key, and is valid for one sandbox only.
const (
	tokenForAgent   = "agent"   // for its holder: the agent, the code interpreter and the ports
	tokenForTraffic = "traffic" // for visitors: the other ports only
)

func (d *Door) token(what, keyID, sandboxID string) string {
	mac := hmac.New(sha256.New, d.config.Secret)
	mac.Write([]byte(what + "\x00" + keyID + "\x00" + sandboxID))
	return keyID + "." + sandboxID + "." + hex.EncodeToString(mac.Sum(nil)[:20])
}

// sandboxOf returns the sandbox that a token claims to be for, or "".
func sandboxOf(token string) string {
	if parts := strings.Split(token, "."); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

// holder finds the caller behind proof of a key, like bothy.KeyHolder.
type holder func(end func(error)) (*bothy.Caller, func(), error)

// byToken finds the caller behind a token for a sandbox; false means that the token
// is invalid. The token says so by itself, whether or not the sandbox exists.
func (d *Door) byToken(ctx context.Context, what string, t target, token string) (holder, bool) {
	id, _, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(token), []byte(d.token(what, id, t.id))) {
		return nil, false
	}
	if t.sb == nil {
		return refuseAll(notFound(t.id)), true
	}
	return d.byID(ctx, t.sb, id), true
}

func (d *Door) byID(ctx context.Context, sb *bothy.Sandbox, id string) holder {
	return func(end func(error)) (*bothy.Caller, func(), error) {
		caller, release, err := d.Keys.HoldID(ctx, sb.ProjectID, id, end)
		if err != nil {
			return nil, nil, err
		}
		if !caller.Can(bothy.ScopeSandboxesWrite) {
			release()
			return nil, nil, bothy.Errorf(bothy.CodeForbidden, "the key that opened sandbox %s does not hold the scope %s", sb.ID, bothy.ScopeSandboxesWrite)
		}
		return caller, release, nil
	}
}

// publicHolder is the caller of a public port.
func publicHolder(sb *bothy.Sandbox) holder {
	return func(func(error)) (*bothy.Caller, func(), error) {
		return &bothy.Caller{ProjectID: sb.ProjectID, Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite}}, func() {}, nil
	}
}

// refuseAll refuses all callers.
func refuseAll(err error) holder {
	return func(func(error)) (*bothy.Caller, func(), error) { return nil, nil, err }
}

// isSigned reports whether the address of a file is signed, in place of a token.
func isSigned(r *http.Request) bool {
	return r.URL.Path == "/files" && r.URL.Query().Has("signature")
}

// What E2B's agent says of an address whose signature does not open it, which is all that it says.
const (
	signatureInvalid = "invalid signature"
	signatureExpired = "signature is already expired"
)

// signed finds the key with whose token the address of a file was signed.
func (d *Door) signed(r *http.Request, sb *bothy.Sandbox) (holder, error) {
	wrong := bothy.Errorf(bothy.CodeUnauthenticated, signatureInvalid)
	if sb == nil {
		return nil, wrong
	}
	q := r.URL.Query()
	ids, err := d.Keys.IDs(r.Context(), sb.ProjectID)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !hmac.Equal([]byte(q.Get("signature")), []byte(signature(r.Method, q, d.token(tokenForAgent, id, sb.ID)))) {
			continue
		}
		if expires := q.Get("signature_expiration"); expires != "" {
			at, err := strconv.ParseInt(expires, 10, 64)
			if err != nil || d.now().Unix() > at {
				return nil, bothy.Errorf(bothy.CodeUnauthenticated, signatureExpired)
			}
		}
		return d.byID(r.Context(), sb, id), nil
	}
	return nil, wrong
}

// signature is a client's signature of the address of a file.
func signature(method string, q url.Values, token string) string {
	operation := "read"
	if method == http.MethodPost {
		operation = "write"
	}
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if expires := q.Get("signature_expiration"); expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// farAhead is the end time of sandboxes without a time-out.
const farAhead = 100 * 365 * 24 * time.Hour
