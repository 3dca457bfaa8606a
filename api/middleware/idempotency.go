package middleware

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
	"github.com/bothy-dev/bothy/store"
)

const (
	IdempotencyKey      = "Idempotency-Key"
	idempotencyReplayed = "Idempotency-Replayed"
	MaxKeyLength        = 255
	// MaxRemembered is the largest answer that is kept. For larger ones only their existence is
	// recorded.
	MaxRemembered = 256 << 10
)

// onlyOnce executes a request unless its key has been used: then it returns the answer of the
// first time. Only success is remembered, and that something was cut off half-way. Any other
// failure has changed nothing, so the request may be retried under the same key.
func (s *Chain) onlyOnce(c Operation, key string, body []byte, w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	if err := checkKey(key); err != nil {
		s.Fail(w, r, err)
		return
	}
	project := bothy.CallerFrom(r.Context()).ProjectID
	print := fingerprint(r, body)
	reserve := s.Answers.ReserveAnswer
	if c.Once {
		reserve = s.Answers.ReserveOnce
	}
	known, err := reserve(r.Context(), project, key, print)
	switch {
	case err != nil:
		s.Fail(w, r, err)
	case known == nil:
		once := &bothy.Once{Key: key, Print: print}
		s.first(c, project, once, w, r.WithContext(bothy.WithOnce(r.Context(), once)), h)
	case known.Fingerprint != print:
		s.Fail(w, r, bothy.Errorf(bothy.CodeIdempotency, "the Idempotency-Key %q was used for another request", key).
			WithHint("Use a new key for every new request, and the old one only to repeat the same."))
	case known.Unknown:
		w.Header().Set(idempotencyReplayed, "true")
		s.Fail(w, r, outcomeUnknown(key))
	case known.Status == 0:
		e := bothy.Errorf(bothy.CodeConflict, "a request with the Idempotency-Key %q is still in progress", key).
			WithHint("Ask again in a second, with the same key: the answer will be that of the first request.")
		e.RetryAfter = time.Second
		s.Fail(w, r, e)
	case known.Dropped:
		w.Header().Set(idempotencyReplayed, "true")
		s.Fail(w, r, bothy.Errorf(bothy.CodeConflict, "this request was already executed, and its answer was too large or too old to keep").
			WithHint("Look at what it has done. Use a new Idempotency-Key if it is to be done once more."))
	default:
		replay(w, known)
	}
}

func (s *Chain) first(c Operation, project string, once *bothy.Once, w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	t := &tee{ResponseWriter: w, ctx: r.Context()}
	answered := false
	defer func() { // also when the handler panics
		s.keepOutcome(c, project, once, t.outcome(c, r, once, answered), r)
	}()
	h(t, r)
	answered = true
}

// keepOutcome stores what a repetition of a request gets, or with nil frees its key.
func (s *Chain) keepOutcome(c Operation, project string, once *bothy.Once, answer *store.Answer, r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	if answer != nil {
		err := s.Answers.StoreAnswer(ctx, project, once.Key, *answer)
		if err == nil {
			return
		}
		s.Log.Error("an answer was not stored", "request", RequestFrom(ctx).id, "error", err)
		if c.Once {
			// The key stays reserved if this fails too: it must not become free.
			err = s.Answers.StoreAnswer(ctx, project, once.Key, store.Answer{Status: answer.Status, Dropped: true})
			if err != nil {
				s.Log.Error("it was not even stored that a request was executed", "request", RequestFrom(ctx).id, "error", err)
			}
			return
		}
	}
	if err := s.Answers.ForgetAnswer(ctx, project, once.Key); err != nil {
		s.Log.Error("an idempotency key was not freed", "error", err)
	}
}

// outcome is what a repetition of a request gets, or nil if it may be executed again.
func (t *tee) outcome(c Operation, r *http.Request, once *bothy.Once, answered bool) *store.Answer {
	var a store.Answer
	switch p := cancelledCommand(r); {
	case p != nil:
		a = problemAnswer(p)
	case answered && t.whole(r):
		a = t.answer(c)
	case once.HasBegun():
		a = problemAnswer(problem.Of(outcomeUnknown(once.Key)))
	default:
		return nil
	}
	return &a
}

// outcomeUnknown is the error for a request whose first attempt was cut off.
func outcomeUnknown(key string) error {
	return bothy.Errorf(bothy.CodeOutcomeUnknown, "the request with the Idempotency-Key %q has already begun, and was cut off before its outcome was known", key).
		WithHint("It is not executed again. Look at what it has done, and use a new Idempotency-Key if it is to be done once more.")
}

// whole reports whether the answer is a complete success. A caller that disconnected may come
// back for the result, but a stream was cut off.
func (t *tee) whole(r *http.Request) bool {
	if t.status < 200 || t.status > 299 {
		return false
	}
	return t.Header().Get("Content-Type") != EventsType || r.Context().Err() == nil
}

// cancelledCommand is the problem of a request whose command was killed because the caller
// disconnected. A repetition must get this error: running the command again would repeat its
// effects so far.
func cancelledCommand(r *http.Request) *problem.Problem {
	if info := RequestFrom(r.Context()); info != nil && info.problem != nil && info.problem.Code == bothy.CodeCommandCancelled {
		return info.problem
	}
	return nil
}

func checkKey(key string) error {
	ok := len(key) <= MaxKeyLength
	for _, c := range []byte(key) {
		ok = ok && c > ' ' && c < 0x7f
	}
	if ok {
		return nil
	}
	return bothy.Errorf(bothy.CodeInvalid, "the Idempotency-Key is not 1 to %d printable ASCII characters", MaxKeyLength).
		WithHint("Use a random UUID.")
}

// fingerprint identifies a request by everything that determines its answer.
func fingerprint(r *http.Request, body []byte) string {
	sum := sha256.New()
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery} {
		sum.Write([]byte(part))
		sum.Write([]byte{0})
	}
	if WantsEvents(r.Header.Get("Accept")) {
		sum.Write([]byte("events\x00"))
	}
	sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil))
}

func replay(w http.ResponseWriter, a *store.Answer) {
	for k, v := range a.Header {
		w.Header().Set(k, v)
	}
	w.Header().Set(idempotencyReplayed, "true")
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// tee keeps a copy of the answer.
type tee struct {
	http.ResponseWriter
	ctx      context.Context
	status   int
	body     bytes.Buffer
	overflow bool
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *tee) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(b []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	after := t.body.Len() + len(b)
	grows := t.body.Len() <= smallBytes && after > smallBytes && !t.overflow
	if after > MaxRemembered || grows && bothy.TakeMemory(t.ctx, MaxRemembered) != nil {
		t.overflow = true
		t.body = bytes.Buffer{}
	}
	if !t.overflow {
		t.body.Write(b)
	}
	return t.ResponseWriter.Write(b)
}

// answer is what a repetition will get. A secret is shown only once, so it is not kept; the
// repetition is told that the request was executed.
func (t *tee) answer(c Operation) store.Answer {
	if t.overflow {
		return store.Answer{Status: t.status, Dropped: true}
	}
	if !c.Secret {
		return store.Answer{Status: t.status, Header: headersToKeep(t.Header()), Body: t.body.Bytes()}
	}
	told := bothy.Errorf(bothy.CodeConflict, "this request was already executed, and its answer contained a secret, which is not kept").
		WithHint("Delete what the first request made, and make another with a new Idempotency-Key.")
	return problemAnswer(problem.Of(told))
}

func problemAnswer(p *problem.Problem) store.Answer {
	var b bytes.Buffer
	_ = problem.Encode(&b, p)
	return store.Answer{Status: p.Status, Header: map[string]string{"Content-Type": problem.ContentType}, Body: b.Bytes()}
}

func headersToKeep(h http.Header) map[string]string {
	out := map[string]string{}
	for _, k := range []string{"Content-Type", "Location"} {
		if v := h.Get(k); v != "" {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}
