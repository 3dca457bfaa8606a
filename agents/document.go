package agents

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/bothy-dev/bothy/internal/bounded"
)

const (
	// maxSession limits the description of a session, in bytes.
	maxSession = 4 << 20
	// maxDepth limits how deeply the values of a document are nested.
	maxDepth = 64
	// maxValues limits the values of a document, as each takes far more memory than space.
	maxValues = 100_000
	// maxSkills and maxStores limit what a session has.
	maxSkills = 64
	maxStores = 16
)

// A description is what the worker understands of a session. Everything that depends on what a
// service says about a session is derived from it, and from nothing else in the service's answer.
type description struct {
	ID    string `json:"id"`
	Agent struct {
		Skills []skill `json:"skills"`
	} `json:"agent"`
	Resources []resource `json:"resources"`
}

// A skill is one of the session's agent.
type skill struct {
	Type    string `json:"type"`
	ID      string `json:"skill_id"`
	Version string `json:"version"`
}

// A resource of a session. Only memory stores mean something to the worker.
type resource struct {
	Type    string `json:"type"`
	StoreID string `json:"memory_store_id"`
	Access  string `json:"access"`
	Path    string `json:"mount_path"`
	Name    string `json:"name,omitempty"`
}

// idForm is what an id must be to become part of a path or of an address.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$`)

// describe reads a service's description of a session.
func describe(b []byte) (*description, error) {
	if _, err := bounded.Unambiguous(b, maxDepth, maxValues); err != nil {
		return nil, fmt.Errorf("the service's description of the session is refused: %w", err)
	}
	d := &description{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("the service's description of the session cannot be read: %w", err)
	}
	if len(d.Agent.Skills) > maxSkills {
		return nil, fmt.Errorf("the session's agent has %d skills, more than %d", len(d.Agent.Skills), maxSkills)
	}
	for _, s := range d.Agent.Skills {
		if !idForm.MatchString(s.ID) || !idForm.MatchString(s.Version) {
			return nil, fmt.Errorf("%.300q, version %.300q, is not the id of a skill", s.ID, s.Version)
		}
	}
	return d, nil
}

// stores are the memory stores of the session.
func (d *description) stores() ([]volume, error) {
	var all []volume
	for _, r := range d.Resources {
		if r.Type != "memory_store" {
			continue
		}
		st := volume{id: r.StoreID, readOnly: r.Access == "read_only", path: r.Path}
		if !idForm.MatchString(st.id) {
			return nil, fmt.Errorf("%.300q is not the id of a memory store", st.id)
		}
		if st.path == "" {
			name := path.Base(r.Name)
			if r.Name == "" {
				name = st.id
			}
			st.path = in(path.Join("memory", name))
		}
		if !path.IsAbs(st.path) || path.Clean(st.path) != st.path || strings.Count(st.path, "/") < 2 || strings.Contains(st.path, "\x00") {
			return nil, fmt.Errorf("the memory store %s cannot be mounted at %.300q", st.id, st.path)
		}
		for _, other := range all {
			if strings.HasPrefix(st.path+"/", other.path+"/") || strings.HasPrefix(other.path+"/", st.path+"/") {
				return nil, fmt.Errorf("the memory stores %s and %s cannot both be mounted: %.300q and %.300q overlap", other.id, st.id, other.path, st.path)
			}
		}
		if all = append(all, st); len(all) > maxStores {
			return nil, fmt.Errorf("the session has more than %d memory stores", maxStores)
		}
	}
	return all, nil
}
