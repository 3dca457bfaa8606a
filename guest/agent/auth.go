package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// headerKey carries the sandbox's key.
const headerKey = "X-Access-Token"

// authenticate accepts requests with the key, requests that need none, and the first adoption.
func (a *Agent) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.mayPass(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := bothy.Errorf(bothy.CodeUnauthenticated, "the guest does not accept this key").
			WithHint("The sandbox was adopted with another one.")
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/") && r.Method == http.MethodPost && r.URL.Path != "/files" {
			writeConnectError(w, r, err)
			return
		}
		writeError(w, r, err)
	})
}

func (a *Agent) mayPass(r *http.Request) bool {
	if r.URL.Path == "/health" {
		return true
	}
	id := a.identity.get()
	if !id.adopted {
		return r.URL.Path == guestpb.GuestAdoptProcedure
	}
	if id.isKey(r.Header.Get(headerKey)) {
		return true
	}
	return r.URL.Path == "/files" && id.signed(r, time.Now())
}

// isKey compares in constant time, whatever the lengths.
func (id *identityState) isKey(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return id.adopted && subtle.ConstantTimeCompare(sum[:], id.keySum[:]) == 1
}

// signed reports whether a request for a file carries a signature that was
// made with the key.
func (id *identityState) signed(r *http.Request, now time.Time) bool {
	q := r.URL.Query()
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + id.key
	if expires := q.Get("signature_expiration"); expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil || now.Unix() > at {
			return false
		}
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	got := q.Get("signature")
	return len(got) == len(want) && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}
