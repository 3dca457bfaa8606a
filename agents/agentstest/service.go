// Package agentstest is a service that queues work for self-hosted environments of managed
// agents, as the types of Anthropic's SDK describe it. It has no model: a test makes the agent's
// calls, and sees the worker's answers.
//
// It is strict. A request without the beta's header, with two credentials, with a field or
// parameter that the SDK's types do not have, or for work that the caller does not hold is refused,
// and counts as a fault (Faults).
package agentstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// betaOf is the value that the header anthropic-beta must have, or "" where the SDK's own clients send none.
func betaOf(path string) string {
	switch {
	case strings.HasPrefix(path, "/v1/memory_stores/"):
		return "agent-memory-2026-07-22"
	case strings.HasPrefix(path, "/v1/skills/"):
		return ""
	}
	return "managed-agents-2026-04-01"
}

// Service is a queue with sessions, skills and memory stores, for one environment.
type Service struct {
	*httptest.Server
	Environment string

	mu       sync.Mutex
	changed  *sync.Cond
	key      string
	lease    time.Duration
	number   int
	work     []*work
	sessions map[string]*Session
	skills   map[string]*skill
	memories map[string]*MemoryStore
	faults   []string
	closed   bool
	busy     bool
	tried    int // results that were refused
	instead  func(http.ResponseWriter, *http.Request) bool
}

type work struct {
	id, session, state, token string
	handedOut, beat           time.Time
	lastBeat                  string
	by                        string
}

// New starts a service. Work whose lease is not renewed is queued again after lease.
func New(environment, key string, lease time.Duration) *Service {
	s := &Service{Environment: environment, key: key, lease: lease,
		sessions: map[string]*Session{}, skills: map[string]*skill{}, memories: map[string]*MemoryStore{}}
	s.changed = sync.NewCond(&s.mu)
	mux := http.NewServeMux()
	handle := func(pattern string, query []string, h func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.acceptable(w, r, append(query, "beta")) && !s.replaced(w, r) {
				h(w, r)
			}
		})
	}
	handle("GET /v1/environments/{environment}/work/poll", []string{"block_ms", "reclaim_older_than_ms"}, s.poll)
	handle("POST /v1/environments/{environment}/work/{work}/ack", nil, s.ack)
	handle("POST /v1/environments/{environment}/work/{work}/heartbeat", []string{"expected_last_heartbeat", "desired_ttl_seconds"}, s.heartbeat)
	handle("POST /v1/environments/{environment}/work/{work}/stop", nil, s.stop)
	handle("GET /v1/sessions/{session}", nil, s.getSession)
	handle("GET /v1/sessions/{session}/events", []string{"limit", "order", "page"}, s.listEvents)
	handle("POST /v1/sessions/{session}/events", nil, s.sendEvents)
	handle("GET /v1/sessions/{session}/events/stream", nil, s.streamEvents)
	handle("GET /v1/skills/{skill}/versions/{version}", nil, s.getSkill)
	handle("GET /v1/skills/{skill}/versions/{version}/content", nil, s.downloadSkill)
	handle("GET /v1/memory_stores/{store}/memories", []string{"view", "limit", "page", "depth", "path_prefix", "order", "order_by"}, s.listMemories)
	handle("POST /v1/memory_stores/{store}/memories", []string{"view"}, s.createMemory)
	handle("GET /v1/memory_stores/{store}/memories/{memory}", []string{"view"}, s.getMemory)
	handle("POST /v1/memory_stores/{store}/memories/{memory}", []string{"view"}, s.updateMemory)
	handle("DELETE /v1/memory_stores/{store}/memories/{memory}", []string{"expected_content_sha256"}, s.deleteMemory)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fault("%s %s is not an operation", r.Method, r.URL.Path)
		fail(w, http.StatusNotFound, "not_found_error", "no such operation")
	})
	s.Server = httptest.NewServer(mux)
	return s
}

// Instead makes a function answer requests, unless it returns false.
func (s *Service) Instead(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead = f
}

func (s *Service) replaced(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	f := s.instead
	s.mu.Unlock()
	return f != nil && f(w, r)
}

// Close ends the service.
func (s *Service) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	if !closed {
		s.CloseClientConnections()
		s.Server.Close()
	}
}

// Faults returns the requests that a worker should not have sent.
func (s *Service) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Revoke replaces the environment key: the old one is refused from now on, like the tokens of
// work.
func (s *Service) Revoke(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
	for _, w := range s.work {
		w.token = ""
	}
	s.changed.Broadcast()
}

// Steal gives a session's work to another worker, as when the lease has run out.
func (s *Service) Steal(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.work {
		if w.session == session && (w.state == "active" || w.state == "starting") {
			w.by, w.lastBeat, w.beat, w.state = "thief", stamp(time.Now()), time.Now().Add(time.Hour), "active"
		}
	}
}

// Working reports whether a session has work that has not been stopped.
func (s *Service) Working(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return slices.ContainsFunc(s.work, func(w *work) bool { return w.session == session && w.state != "stopped" })
}

// AwaitRest waits until a session has no work.
func (s *Service) AwaitRest(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && slices.ContainsFunc(s.work, func(w *work) bool { return w.session == session && w.state != "stopped" }) {
		s.changed.Wait()
	}
}

// Busy makes the service answer posted results that it is overloaded, or stop doing so.
func (s *Service) Busy(busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.tried = busy, 0
}

// AwaitRefused waits until a result was refused since Busy.
func (s *Service) AwaitRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.tried == 0 {
		s.changed.Wait()
	}
}

func (s *Service) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// next makes an id.
func (s *Service) next(kind string) string {
	s.number++
	return fmt.Sprintf("%s_%04d", kind, s.number)
}

// acceptable checks what all requests have in common.
func (s *Service) acceptable(w http.ResponseWriter, r *http.Request, query []string) bool {
	if beta := betaOf(r.URL.Path); beta != "" && !slices.Contains(strings.Split(strings.Join(r.Header.Values("anthropic-beta"), ","), ","), beta) {
		s.fault("%s %s has no beta header", r.Method, r.URL.Path)
		fail(w, http.StatusBadRequest, "invalid_request_error", "the beta header is missing")
		return false
	}
	for name := range r.URL.Query() {
		if !slices.Contains(query, name) {
			s.fault("%s %s has the unknown parameter %s", r.Method, r.URL.Path, name)
			fail(w, http.StatusBadRequest, "invalid_request_error", "unknown parameter "+name)
			return false
		}
	}
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || r.Header.Get("X-Api-Key") != "" {
		s.fault("%s %s has not just a bearer credential", r.Method, r.URL.Path)
		fail(w, http.StatusUnauthorized, "authentication_error", "give one credential")
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	valid := key == s.key && !strings.HasPrefix(r.URL.Path, "/v1/memory_stores/") ||
		slices.ContainsFunc(s.work, func(w *work) bool { return w.token != "" && w.token == key && w.state != "stopped" })
	if strings.HasSuffix(r.URL.Path, "/stop") { // work may be stopped twice
		valid = valid || slices.ContainsFunc(s.work, func(w *work) bool { return w.token != "" && w.token == key })
	}
	if !valid {
		fail(w, http.StatusUnauthorized, "authentication_error", "the credential is not valid")
		return false
	}
	if e := r.PathValue("environment"); e != "" && e != s.Environment {
		fail(w, http.StatusNotFound, "not_found_error", "no such environment")
		return false
	}
	return true
}

func fail(w http.ResponseWriter, status int, kind, message string) {
	answer(w, status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// enqueue queues work for a session, unless there is some.
func (s *Service) enqueue(session string) {
	if slices.ContainsFunc(s.work, func(w *work) bool { return w.session == session && w.state != "stopped" }) {
		return
	}
	s.work = append(s.work, &work{id: s.next("work"), session: session, state: "queued"})
	s.changed.Broadcast()
}

// expire queues work again whose lease was not renewed.
func (s *Service) expire() {
	for _, w := range s.work {
		if (w.state == "active" || w.state == "starting") && time.Since(w.beat) > s.lease {
			w.state, w.lastBeat, w.token, w.handedOut = "queued", "", "", time.Time{}
			s.changed.Broadcast()
		}
	}
}

// shown is work as the SDK's type BetaSelfHostedWork has it.
func (s *Service) shown(w *work, secret any) map[string]any {
	orNull := func(v string) any {
		if v == "" {
			return nil
		}
		return v
	}
	return map[string]any{
		"id": w.id, "type": "work", "environment_id": s.Environment, "state": w.state, "data": map[string]any{"id": w.session, "type": "session"},
		"acknowledged_at": nil, "created_at": stamp(time.Now()), "latest_heartbeat_at": orNull(w.lastBeat), "metadata": map[string]string{},
		"secret": secret, "started_at": nil, "stop_requested_at": nil, "stopped_at": nil,
	}
}

func (s *Service) poll(w http.ResponseWriter, r *http.Request) {
	block := time.Duration(0)
	if v := r.URL.Query().Get("block_ms"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 999 {
			s.fault("block_ms is %s", v)
			fail(w, http.StatusBadRequest, "invalid_request_error", "block_ms")
			return
		}
		block = time.Duration(n) * time.Millisecond
	}
	reclaim := time.Duration(1 << 62)
	if v := r.URL.Query().Get("reclaim_older_than_ms"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			s.fault("reclaim_older_than_ms is %s", v)
			fail(w, http.StatusBadRequest, "invalid_request_error", "reclaim_older_than_ms")
			return
		}
		reclaim = time.Duration(n) * time.Millisecond
	}
	until := time.Now().Add(block)
	wake := time.AfterFunc(block, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer wake.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.expire()
		for _, x := range s.work {
			if x.state == "queued" && (x.handedOut.IsZero() || time.Since(x.handedOut) > reclaim) && r.Context().Err() == nil {
				x.handedOut, x.by, x.token = time.Now(), r.Header.Get("Anthropic-Worker-ID"), s.next("token")
				answer(w, http.StatusOK, s.shown(x, secretOf(x.token)))
				return
			}
		}
		if !time.Now().Before(until) || s.closed || r.Context().Err() != nil {
			answer(w, http.StatusOK, nil)
			return
		}
		s.changed.Wait()
	}
}

// find is the work of a request, under the lock.
func (s *Service) find(w http.ResponseWriter, r *http.Request) *work {
	for _, x := range s.work {
		if x.id == r.PathValue("work") {
			return x
		}
	}
	fail(w, http.StatusNotFound, "not_found_error", "no such work")
	return nil
}

func (s *Service) ack(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.find(w, r)
	switch {
	case x == nil:
	case x.state != "queued":
		fail(w, http.StatusConflict, "conflict_error", "the work is "+x.state)
	default:
		x.state, x.beat = "starting", time.Now()
		answer(w, http.StatusOK, s.shown(x, nil))
	}
}

func (s *Service) heartbeat(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.find(w, r)
	if x == nil {
		return
	}
	expected := r.URL.Query().Get("expected_last_heartbeat")
	have := x.lastBeat
	if have == "" {
		have = "NO_HEARTBEAT"
	}
	if x.state == "stopped" {
		answer(w, http.StatusOK, map[string]any{"type": "work_heartbeat", "last_heartbeat": stamp(time.Now()), "lease_extended": false, "state": x.state, "ttl_seconds": s.seconds()})
		return
	}
	if x.state == "queued" || expected != have {
		answer(w, http.StatusPreconditionFailed, map[string]any{"type": "error", "error": map[string]any{
			"type": "invalid_request_error", "message": "the lease is not the caller's", "details": map[string]any{"current_state": map[string]any{"state": x.state}},
		}})
		return
	}
	x.state, x.beat = "active", time.Now()
	x.lastBeat = stamp(x.beat)
	answer(w, http.StatusOK, map[string]any{"type": "work_heartbeat", "last_heartbeat": x.lastBeat, "lease_extended": true, "state": x.state, "ttl_seconds": s.seconds()})
}

func (s *Service) seconds() int { return max(1, int(s.lease/time.Second)) }

func (s *Service) stop(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Force *bool `json:"force"`
	}
	if !s.decode(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.find(w, r)
	switch {
	case x == nil:
	case x.state == "stopped":
		fail(w, http.StatusConflict, "conflict_error", "the work is stopped")
	default:
		x.state = "stopped"
		// What arrived while the session had no worker needs new work.
		if p := s.sessions[x.session]; p != nil && len(p.open()) > 0 {
			s.enqueue(x.session)
		}
		s.changed.Broadcast()
		w.WriteHeader(http.StatusNoContent)
	}
}

// decode decodes a body that may only have the fields of v.
func (s *Service) decode(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && (err.Error() != "EOF" || r.ContentLength > 0) {
		s.fault("%s %s: %v", r.Method, r.URL.Path, err)
		fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return false
	}
	return true
}
