package agentstest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

type skill struct {
	name    string
	archive []byte
}

// Skill adds a skill whose files are in an archive, and returns its id.
func (s *Service) Skill(name string, archive []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.next("skill")
	s.skills[id] = &skill{name, archive}
	return id
}

// skillVersion is the only version of each skill. Only its id can be downloaded.
const skillVersion = "skillver_1"

func (s *Service) getSkill(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.skills[r.PathValue("skill")]
	if v := r.PathValue("version"); x == nil || v != "latest" && v != skillVersion {
		fail(w, http.StatusNotFound, "not_found_error", "no such skill")
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"id": skillVersion, "type": "skill_version", "created_at": stamp(time.Now()), "description": "", "name": x.name, "skill_id": r.PathValue("skill"),
	})
}

func (s *Service) downloadSkill(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.skills[r.PathValue("skill")]
	if x == nil || r.PathValue("version") != skillVersion {
		fail(w, http.StatusNotFound, "not_found_error", "no such skill")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(x.archive)
}

// MemoryStore is a store of memories, by path.
type MemoryStore struct {
	ID            string
	service       *Service
	mount, access string
	memories      map[string]*memory
}

type memory struct{ id, path, content string }

// MemoryStore adds a store that sessions have at a path, read_write or read_only.
func (s *Service) MemoryStore(mount, access string, files map[string]string) *MemoryStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &MemoryStore{ID: s.next("memstore"), service: s, mount: mount, access: access, memories: map[string]*memory{}}
	for path, content := range files {
		x := &memory{s.next("mem"), path, content}
		m.memories[x.id] = x
	}
	s.memories[m.ID] = m
	return m
}

// Files are the store's memories by path.
func (m *MemoryStore) Files() map[string]string {
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	files := map[string]string{}
	for _, x := range m.memories {
		files[x.path] = x.content
	}
	return files
}

// Put changes a memory as another session would.
func (m *MemoryStore) Put(path, content string) {
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	if x := m.at(path); x != nil {
		x.content = content
		return
	}
	x := &memory{m.service.next("mem"), path, content}
	m.memories[x.id] = x
}

// Remove removes a memory as another session would.
func (m *MemoryStore) Remove(path string) {
	m.service.mu.Lock()
	defer m.service.mu.Unlock()
	if x := m.at(path); x != nil {
		delete(m.memories, x.id)
	}
}

func (m *MemoryStore) at(path string) *memory {
	for _, x := range m.memories {
		if x.path == path {
			return x
		}
	}
	return nil
}

func sum(content string) string {
	b := sha256.Sum256([]byte(content))
	return hex.EncodeToString(b[:])
}

func (m *MemoryStore) shown(x *memory, view string) map[string]any {
	v := map[string]any{
		"id": x.id, "type": "memory", "path": x.path, "content_sha256": sum(x.content), "content_size_bytes": len(x.content), "memory_store_id": m.ID,
		"memory_version_id": "memver_1", "created_at": stamp(time.Now()), "updated_at": stamp(time.Now()),
	}
	if view == "full" {
		v["content"] = x.content
	}
	return v
}

func (s *Service) findStore(w http.ResponseWriter, r *http.Request) *MemoryStore {
	m := s.memories[r.PathValue("store")]
	if m == nil {
		fail(w, http.StatusNotFound, "not_found_error", "no such memory store")
	}
	return m
}

func (s *Service) findMemory(w http.ResponseWriter, r *http.Request) (*MemoryStore, *memory) {
	m := s.findStore(w, r)
	if m == nil {
		return nil, nil
	}
	x := m.memories[r.PathValue("memory")]
	if x == nil {
		fail(w, http.StatusNotFound, "not_found_error", "no such memory")
	}
	return m, x
}

func (s *Service) listMemories(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.findStore(w, r)
	if m == nil {
		return
	}
	ids := slices.Sorted(maps.Keys(m.memories))
	from, _ := strconv.Atoi(r.URL.Query().Get("page"))
	from = min(from, len(ids))
	to := min(from+2, len(ids)) // so that workers turn pages
	var next any
	if to < len(ids) {
		next = strconv.Itoa(to)
	}
	data := []map[string]any{}
	for _, id := range ids[from:to] {
		data = append(data, m.shown(m.memories[id], r.URL.Query().Get("view")))
	}
	answer(w, http.StatusOK, map[string]any{"data": data, "next_page": next})
}

func (s *Service) createMemory(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	if !s.decode(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.findStore(w, r)
	switch {
	case m == nil:
	case m.access == "read_only" || body.Content == nil || body.Path == "" || body.Path[0] != '/':
		s.faults = append(s.faults, "a memory is made in a store that is read-only, or without a path or content")
		fail(w, http.StatusBadRequest, "invalid_request_error", "read-only, or no path or content")
	case m.at(body.Path) != nil:
		fail(w, http.StatusConflict, "conflict_error", "there is a memory of that path")
	default:
		x := &memory{s.next("mem"), body.Path, *body.Content}
		m.memories[x.id] = x
		s.changed.Broadcast()
		answer(w, http.StatusOK, m.shown(x, "basic"))
	}
}

func (s *Service) getMemory(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, x := s.findMemory(w, r); x != nil {
		answer(w, http.StatusOK, m.shown(x, r.URL.Query().Get("view")))
	}
}

func (s *Service) updateMemory(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Path         *string `json:"path"`
		Content      *string `json:"content"`
		Precondition *struct {
			Type string `json:"type"`
			Sum  string `json:"content_sha256"`
		} `json:"precondition"`
	}
	if !s.decode(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, x := s.findMemory(w, r)
	switch {
	case x == nil:
	case m.access == "read_only":
		s.faults = append(s.faults, "a memory is changed in a store that is read-only")
		fail(w, http.StatusBadRequest, "invalid_request_error", "read-only")
	case body.Precondition != nil && body.Precondition.Sum != sum(x.content):
		fail(w, http.StatusConflict, "memory_precondition_failed_error", "the memory has changed")
	default:
		if body.Path != nil {
			x.path = *body.Path
		}
		if body.Content != nil {
			x.content = *body.Content
		}
		s.changed.Broadcast()
		answer(w, http.StatusOK, m.shown(x, "basic"))
	}
}

func (s *Service) deleteMemory(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, x := s.findMemory(w, r)
	switch expected := r.URL.Query().Get("expected_content_sha256"); {
	case x == nil:
	case m.access == "read_only":
		s.faults = append(s.faults, "a memory is deleted in a store that is read-only")
		fail(w, http.StatusBadRequest, "invalid_request_error", "read-only")
	case expected != "" && expected != sum(x.content):
		fail(w, http.StatusConflict, "memory_precondition_failed_error", "the memory has changed")
	default:
		delete(m.memories, x.id)
		s.changed.Broadcast()
		answer(w, http.StatusOK, map[string]any{"id": x.id, "type": "memory_deleted"})
	}
}
