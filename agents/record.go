package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/bothy-dev/bothy"
)

// noHeartbeat is the predecessor that the first heartbeat of a lease expects.
const noHeartbeat = "NO_HEARTBEAT"

// A record is what the store holds about a session, encrypted.
type record struct {
	SandboxID string `json:"sandbox_id,omitempty"`
	// WorkID is the claimed work, with the secret that it came with and the heartbeat that
	// continues its lease.
	WorkID    string `json:"work_id,omitempty"`
	Secret    string `json:"secret,omitempty"`
	Heartbeat string `json:"heartbeat,omitempty"`
	// Shell is the process of the persistent bash, 0 for none.
	Shell int `json:"shell,omitempty"`
	// Skills are those in the sandbox, as ID@VERSION.
	Skills []string `json:"skills,omitempty"`
	// Calls are the calls whose results may not have been received.
	Calls map[string]callState `json:"calls,omitempty"`
	// Memory is the content, by its SHA-256, that the memories in the sandbox and those of the
	// service last agreed on, by path.
	Memory map[string]string `json:"memory,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// moveTo records that the session has another, empty sandbox, or "" for none.
func (r *record) moveTo(sandbox string) {
	r.SandboxID, r.Shell, r.Skills, r.Memory = sandbox, 0, nil, nil
}

// A callState is the progress of a tool's call.
type callState struct {
	// Process, From and Nonce locate the output of a command; Seconds is its time-out.
	Process int     `json:"process,omitempty"`
	From    int64   `json:"from,omitempty"`
	Nonce   string  `json:"nonce,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Sum is the SHA-256 of the file that an edit makes.
	Sum string `json:"sum,omitempty"`
	// Done is set with the result.
	Done   bool    `json:"done,omitempty"`
	Result []block `json:"result,omitempty"`
	Failed bool    `json:"failed,omitempty"`
}

// A block is a piece of a result: text, or a file of a type.
type block struct {
	Text string `json:"text,omitempty"`
	Type string `json:"type,omitempty"`
	Data string `json:"data,omitempty"` // in base64
}

func text(s string) []block { return []block{{Text: s}} }

// param is a block as the SDK sends it.
func (b block) param() anthropic.BetaToolResultBlockParamContentUnion {
	switch b.Type {
	case "":
		return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: b.Text}}
	case typePDF:
		return anthropic.BetaToolResultBlockParamContentUnion{OfDocument: &anthropic.BetaRequestDocumentBlockParam{
			Source: anthropic.BetaRequestDocumentBlockSourceUnionParam{OfBase64: &anthropic.BetaBase64PDFSourceParam{Data: b.Data}},
		}}
	}
	return anthropic.BetaToolResultBlockParamContentUnion{OfImage: &anthropic.BetaImageBlockParam{
		Source: anthropic.BetaImageBlockParamSourceUnion{OfBase64: &anthropic.BetaBase64ImageSourceParam{
			Data: b.Data, MediaType: anthropic.BetaBase64ImageSourceMediaType(b.Type),
		}},
	}}
}

func params(blocks []block) []anthropic.BetaToolResultBlockParamContentUnion {
	out := make([]anthropic.BetaToolResultBlockParamContentUnion, len(blocks))
	for i, b := range blocks {
		out[i] = b.param()
	}
	return out
}

func openRecord(v Vault, attachment, id string, b []byte) (*record, error) {
	plain, err := v.Open(b, boundTo(attachment)+" "+id)
	if err != nil {
		return nil, fmt.Errorf("the session %s cannot be read: %w", id, err)
	}
	r := &record{}
	return r, json.Unmarshal(plain, r)
}

func (r *record) shown(id string) bothy.AgentSession {
	return bothy.AgentSession{ID: id, SandboxID: r.SandboxID, Working: r.WorkID != "", LastError: r.Error}
}

func sortSessions(s []bothy.AgentSession) {
	slices.SortFunc(s, func(a, b bothy.AgentSession) int { return cmp.Compare(a.ID, b.ID) })
}

// change changes the session's record, in the store before anything relies on it.
func (s *session) change(ctx context.Context, f func(*record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.record)
	plain, err := json.Marshal(&s.record)
	if err != nil {
		return err
	}
	a := s.worker.attachment.ID
	b, err := s.worker.o.Vault.Seal(plain, boundTo(a)+" "+s.id)
	if err != nil {
		return err
	}
	return s.worker.o.Store.PutAgentSession(context.WithoutCancel(ctx), a, s.id, b)
}

// now returns a copy of the session's record, whose maps and calls must not be changed.
func (s *session) now() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}
