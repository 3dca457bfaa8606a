package agentstest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Session is a session with the test as its agent.
type Session struct {
	ID string

	service   *Service
	skills    []map[string]any
	resources []map[string]any
	events    []map[string]any
	results   map[string]Result
	posted    map[string]int
	ended     bool
	answer    []byte // what the service says about it, or nil
}

// Result is what a worker answered to a call.
type Result struct {
	// Text is the result's text, all blocks together.
	Text string
	// Files are the blocks that are not text, by media type, in base64.
	Files   map[string]string
	IsError bool
}

// secretOf is the payload that comes with work.
func secretOf(token string) string {
	b, _ := json.Marshal(map[string]any{"version": 1, "sessions_token": token})
	return base64.RawURLEncoding.EncodeToString(b)
}

// Session makes a session, with skills and memory stores.
func (s *Service) Session(skills []string, stores ...*MemoryStore) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &Session{ID: s.next("sesn"), service: s, results: map[string]Result{}, posted: map[string]int{}}
	for _, id := range skills {
		x.skills = append(x.skills, map[string]any{"type": "custom", "skill_id": id, "version": "latest"})
	}
	for _, m := range stores {
		x.resources = append(x.resources, map[string]any{
			"type": "memory_store", "memory_store_id": m.ID, "access": m.access, "description": "", "instructions": nil, "mount_path": m.mount, "name": m.ID,
		})
	}
	s.sessions[x.ID] = x
	return x
}

// Answer makes the service give an answer of the test's own when it is asked for the session.
func (x *Session) Answer(body []byte) {
	x.service.mu.Lock()
	defer x.service.mu.Unlock()
	x.answer = body
}

// Start makes the agent call a tool, and returns the call's id.
func (x *Session) Start(tool string, input map[string]any) string {
	return x.start("agent.tool_use", map[string]any{"name": tool, "input": input, "evaluated_permission": "allow"})
}

// StartCustom makes the agent call a tool of its own.
func (x *Session) StartCustom(tool string, input map[string]any) string {
	return x.start("agent.custom_tool_use", map[string]any{"name": tool, "input": input})
}

func (x *Session) start(kind string, event map[string]any) string {
	s := x.service
	s.mu.Lock()
	defer s.mu.Unlock()
	id := x.add(kind, event)
	s.enqueue(x.ID)
	return id
}

// Call makes the agent call a tool and waits for the result.
func (x *Session) Call(tool string, input map[string]any) Result { return x.Wait(x.Start(tool, input)) }

// Wait waits for the result of a call. After the service's end it is an error.
func (x *Session) Wait(id string) Result {
	s := x.service
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if r, ok := x.results[id]; ok {
			return r
		}
		if s.closed {
			return Result{Text: "the service has ended", IsError: true}
		}
		s.changed.Wait()
	}
}

// Posted is how often a call was answered.
func (x *Session) Posted(id string) int {
	x.service.mu.Lock()
	defer x.service.mu.Unlock()
	return x.posted[id]
}

// Idle ends the agent's turn.
func (x *Session) Idle() {
	x.service.mu.Lock()
	defer x.service.mu.Unlock()
	x.add("session.status_idle", map[string]any{"stop_reason": map[string]any{"type": "end_turn"}, "stop_details": nil})
}

// Interrupt makes the user interrupt the agent.
func (x *Session) Interrupt() {
	x.service.mu.Lock()
	defer x.service.mu.Unlock()
	x.add("user.interrupt", map[string]any{})
}

// End terminates the session.
func (x *Session) End() {
	x.service.mu.Lock()
	defer x.service.mu.Unlock()
	x.ended = true
	x.add("session.status_terminated", map[string]any{})
}

// add adds an event, under the lock.
func (x *Session) add(kind string, event map[string]any) string {
	id := x.service.next("sevt")
	event["id"], event["type"], event["processed_at"] = id, kind, stamp(time.Now())
	x.events = append(x.events, event)
	x.service.changed.Broadcast()
	return id
}

// open are the calls without a result.
func (x *Session) open() (ids []string) {
	for _, e := range x.events {
		id := e["id"].(string)
		if _, answered := x.results[id]; (e["type"] == "agent.tool_use" || e["type"] == "agent.custom_tool_use") && !answered && !x.ended {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *Service) findSession(w http.ResponseWriter, r *http.Request) *Session {
	x := s.sessions[r.PathValue("session")]
	if x == nil {
		fail(w, http.StatusNotFound, "not_found_error", "no such session")
	}
	return x
}

func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func (s *Service) getSession(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.findSession(w, r)
	if x == nil {
		return
	}
	if x.answer != nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(x.answer)
		return
	}
	status := "running"
	if x.ended {
		status = "terminated"
	}
	now := stamp(time.Now())
	answer(w, http.StatusOK, map[string]any{
		"id": x.ID, "type": "session", "archived_at": nil, "budget": nil, "created_at": now, "updated_at": now, "environment_id": s.Environment,
		"metadata": map[string]string{}, "outcome_evaluations": []any{}, "resources": list(x.resources), "stats": map[string]any{}, "status": status, "title": nil,
		"usage": map[string]any{}, "vault_ids": []string{},
		"agent": map[string]any{
			"id": "agent_1", "type": "agent", "version": 1, "name": "test", "description": nil, "system": nil, "multiagent": nil,
			"model": map[string]any{"id": "claude-sonnet-4-5"}, "mcp_servers": []any{}, "skills": list(x.skills),
			"execution_identity": map[string]any{"type": "service_account"},
			"tools":              []any{},
		},
	})
}

func (s *Service) listEvents(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.findSession(w, r)
	if x == nil {
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("page"))
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > 1000 || r.URL.Query().Get("order") == "desc" {
		fail(w, http.StatusBadRequest, "invalid_request_error", "limit or order")
		return
	}
	limit = min(limit, 3) // so that workers turn pages
	from = min(from, len(x.events))
	to := min(from+limit, len(x.events))
	var next any
	if to < len(x.events) {
		next = strconv.Itoa(to)
	}
	answer(w, http.StatusOK, map[string]any{"data": list(x.events[from:to]), "next_page": next})
}

func (s *Service) sendEvents(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Events []struct {
			Type            string          `json:"type"`
			ToolUseID       string          `json:"tool_use_id"`
			CustomToolUseID string          `json:"custom_tool_use_id"`
			IsError         bool            `json:"is_error"`
			Content         json.RawMessage `json:"content"`
		} `json:"events"`
	}
	if !s.decode(w, r, &body) {
		return
	}
	type source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.findSession(w, r)
	if x == nil {
		return
	}
	if s.busy {
		s.tried++
		s.changed.Broadcast()
		fail(w, http.StatusServiceUnavailable, "overloaded_error", "the service is overloaded")
		return
	}
	bad := func(format string, args ...any) {
		message := fmt.Sprintf(format, args...)
		s.faults = append(s.faults, message)
		fail(w, http.StatusBadRequest, "invalid_request_error", message)
	}
	for _, e := range body.Events {
		id, kind := e.ToolUseID, "agent.tool_use"
		switch {
		case e.Type == "user.custom_tool_result":
			id, kind = e.CustomToolUseID, "agent.custom_tool_use"
		case e.Type != "user.tool_result":
			bad("a worker sends no %s", e.Type)
			return
		}
		var called bool
		for _, c := range x.events {
			called = called || c["id"] == id && c["type"] == kind
		}
		var blocks []struct {
			Type   string  `json:"type"`
			Text   string  `json:"text"`
			Source *source `json:"source"`
		}
		if err := json.Unmarshal(e.Content, &blocks); err != nil || !called || len(blocks) == 0 {
			bad("a result of the call %q, %v: %v", id, called, err)
			return
		}
		result := Result{IsError: e.IsError, Files: map[string]string{}}
		for _, b := range blocks {
			switch {
			case b.Type == "text" && b.Text != "":
				result.Text += b.Text
			case (b.Type == "image" || b.Type == "document") && b.Source != nil && b.Source.Type == "base64":
				result.Files[b.Source.MediaType] = b.Source.Data
			default:
				bad("a block of the type %q that is empty or unknown", b.Type)
				return
			}
		}
		x.posted[id]++
		x.results[id] = result
		event := map[string]any{"is_error": e.IsError, "content": e.Content}
		if kind == "agent.tool_use" {
			event["tool_use_id"] = id
		} else {
			event["custom_tool_use_id"] = id
		}
		x.add(e.Type, event)
	}
	answer(w, http.StatusOK, map[string]any{"data": list(x.events[len(x.events)-len(body.Events):])})
}

func (s *Service) streamEvents(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	x := s.findSession(w, r)
	if x == nil {
		s.mu.Unlock()
		return
	}
	from := len(x.events)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			s.changed.Broadcast()
			s.mu.Unlock()
		case <-done:
		}
	}()
	for {
		s.mu.Lock()
		for from >= len(x.events) && r.Context().Err() == nil && !s.closed {
			s.changed.Wait()
		}
		events := x.events[from:]
		from = len(x.events)
		over := s.closed || r.Context().Err() != nil
		s.mu.Unlock()
		if over {
			return
		}
		for _, e := range events {
			b, _ := json.Marshal(e)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
		}
		_ = http.NewResponseController(w).Flush()
	}
}
