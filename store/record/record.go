// Package record is the format in which stores keep domain objects: the JSON of their `record`
// columns, and the cursors of lists. All stores use the same format, so that records can be
// transferred between them.
package record

import (
	"encoding/json"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// The records are the content of the `record` columns. They embed the domain types in their
// wire format and add the fields it omits. A field added to a type with `json:"-"` must be
// added here; a test checks all fields.

type sandboxRecord struct {
	store.Sandbox
	Network    networkRecord `json:"network"`
	ProjectID  string        `json:"_project,omitempty"`
	SnapshotID string        `json:"_snapshot_id,omitempty"`
	EarlierID  string        `json:"_earlier_snapshot_id,omitempty"`
}

// networkRecord is a Network without its methods: the wire format writes an unset mode as
// "off".
type networkRecord bothy.Network

// EncodeSandbox returns the record of a sandbox.
func EncodeSandbox(s *store.Sandbox) (string, error) {
	return encode(sandboxRecord{
		Sandbox: *s, Network: networkRecord(s.Network), ProjectID: s.ProjectID, SnapshotID: s.SnapshotID, EarlierID: s.EarlierSnapshotID,
	})
}

// DecodeSandbox parses the record of a sandbox, and sets its version, which has its own column.
func DecodeSandbox(text string, version int64) (*store.Sandbox, error) {
	var r sandboxRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	s := r.Sandbox
	s.Network = bothy.Network(r.Network)
	s.ProjectID, s.SnapshotID, s.EarlierSnapshotID = r.ProjectID, r.SnapshotID, r.EarlierID
	s.Version = version
	return &s, nil
}

type snapshotRecord struct {
	bothy.Snapshot
	ProjectID string             `json:"_project,omitempty"`
	Needs     *bothy.MemoryNeeds `json:"_needs,omitempty"`
}

// EncodeSnapshot returns the record of a snapshot.
func EncodeSnapshot(s *bothy.Snapshot) (string, error) {
	return encode(snapshotRecord{Snapshot: *s, ProjectID: s.ProjectID, Needs: s.Needs})
}

// DecodeSnapshot parses the record of a snapshot.
func DecodeSnapshot(text string) (*bothy.Snapshot, error) {
	var r snapshotRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	s := r.Snapshot
	s.ProjectID, s.Needs = r.ProjectID, r.Needs
	if s.Durable == "" { // written before this field existed
		s.Durable = bothy.DurableHost
	}
	return &s, nil
}

// EncodeToken returns the record of a token, without the key, which is never stored, and the
// last use, which has its own column.
func EncodeToken(t *store.Token) (string, error) {
	c := *t
	c.Key, c.LastUsedAt = "", nil
	return encode(c)
}

// DecodeToken parses the record of a token, and sets its last use.
func DecodeToken(text string, lastUsed *int64) (*store.Token, error) {
	var t store.Token
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	if lastUsed != nil {
		at := time.Unix(0, *lastUsed).UTC()
		t.LastUsedAt = &at
	}
	return &t, nil
}

type eventRecord struct {
	bothy.Event
	ProjectID string `json:"_project"`
}

// EncodeEvent returns the record of an event.
func EncodeEvent(e *bothy.Event) (string, error) {
	return encode(eventRecord{Event: *e, ProjectID: e.ProjectID})
}

// DecodeEvent parses the record of an event, and sets its id.
func DecodeEvent(id int64, text string) (bothy.Event, error) {
	var r eventRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return bothy.Event{}, err
	}
	e := r.Event
	e.ID, e.ProjectID = id, r.ProjectID
	return e, nil
}

// linkRecord stores a link without its URL, which is a secret.
type linkRecord struct {
	bothy.Link
	ProjectID string `json:"_project,omitempty"`
}

// EncodeLink returns the record of a link.
func EncodeLink(l *bothy.Link) (string, error) {
	kept := linkRecord{Link: *l, ProjectID: l.ProjectID}
	kept.URL = ""
	return encode(kept)
}

// DecodeLink parses the record of a link.
func DecodeLink(text string) (*bothy.Link, error) {
	var r linkRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	l := r.Link
	l.ProjectID = r.ProjectID
	return &l, nil
}

// webhookRecord omits the state, which has its own column.
type webhookRecord struct {
	store.Webhook
	ProjectID string `json:"_project,omitempty"`
}

// EncodeWebhook returns the records of a webhook and of its state.
func EncodeWebhook(w *store.Webhook) (text, state string, err error) {
	kept := webhookRecord{Webhook: *w, ProjectID: w.ProjectID}
	kept.Secret, kept.WebhookState = "", bothy.WebhookState{}
	if text, err = encode(kept); err != nil {
		return "", "", err
	}
	state, err = EncodeWebhookState(w.WebhookState)
	return text, state, err
}

// EncodeWebhookState returns the record of a webhook's state.
func EncodeWebhookState(st bothy.WebhookState) (string, error) { return encode(st) }

// DecodeWebhook parses the records of a webhook and of its state.
func DecodeWebhook(text, state string) (*store.Webhook, error) {
	var r webhookRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	w := r.Webhook
	w.ProjectID = r.ProjectID
	return &w, json.Unmarshal([]byte(state), &w.WebhookState)
}

type agentsRecord struct {
	store.AgentAttachment
	ProjectID string `json:"_project,omitempty"`
}

// EncodeAgents returns the record of an attachment, without its current status.
func EncodeAgents(a *store.AgentAttachment) (string, error) {
	kept := agentsRecord{AgentAttachment: *a, ProjectID: a.ProjectID}
	kept.State, kept.LastError, kept.Sessions = "", "", nil
	return encode(kept)
}

// DecodeAgents parses the record of an attachment.
func DecodeAgents(text string) (*store.AgentAttachment, error) {
	var r agentsRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	a := r.AgentAttachment
	a.ProjectID = r.ProjectID
	return &a, nil
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
