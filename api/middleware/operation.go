package middleware

import (
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
)

// An Operation describes one operation, apart from its input and output.
type Operation struct {
	ID      string
	Method  string
	Path    string
	Tag     string
	Summary string
	Text    string
	// Scope is the scope that the caller must have.
	Scope bothy.Scope
	// Status is the status of success; 200, or 204 for an empty answer, when zero.
	Status int
	// Raw is a body of bytes, which is streamed and not limited.
	Raw bool
	// Once is what must not be done twice under one idempotency key, even if it was cut off.
	Once bool
	// Secret is an answer that must not be kept.
	Secret bool
	// Returns are the forms of an answer that the call itself writes.
	Returns []Form
	// AnyQuery lets the call parse the query itself.
	AnyQuery bool
	// Parameters are those that the input does not show.
	Parameters []*huma.Param
	// Audit also records a call that changes nothing.
	Audit bool
	// Revokes marks a call that takes a right away. It works even if the audit has no room: each
	// right is taken away once, so few records wait in memory for that.
	Revokes bool
	// Multipart takes requests with a multipart body.
	Multipart http.HandlerFunc
}

// Form is one content type of an answer, with the type of its JSON or of the
// events in it; no type means bytes.
type Form struct {
	ContentType string
	Of          reflect.Type
}

// As is the form of an answer that is a T in JSON, or a stream of Ts.
func As[T any](contentType string) Form { return Form{contentType, reflect.TypeFor[T]()} }

// Bytes is the form of an answer that is not JSON.
func Bytes(contentType string) Form { return Form{ContentType: contentType} }

func (c Operation) mutates() bool { return c.Method != http.MethodGet }

func IsMultipart(r *http.Request) bool {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t == "multipart/form-data"
}

func (c Operation) takesJSON(r *http.Request) bool {
	return c.mutates() && !c.Raw && !(c.Multipart != nil && IsMultipart(r))
}

// remembers reports whether a repetition gets the answer of the first request. Uploading bytes
// can safely be repeated anyway.
func (c Operation) remembers(r *http.Request) bool { return c.takesJSON(r) }

func (c Operation) RemembersAny() bool { return c.mutates() && !c.Raw }

// Changes reports whether a request may change something, or opens a connection that may.
func Changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Header.Get("Upgrade") != ""
	}
	return true
}

// EventsType is the content type of a stream of events.
const EventsType = "text/event-stream"

// WantsEvents reports whether a caller asks for events.
func WantsEvents(accept string) bool { return strings.Contains(accept, EventsType) }
