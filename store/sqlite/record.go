package sqlite

import (
	"encoding/json"
	"time"

	"github.com/bothy-dev/bothy"
)

// The records are what the `record` columns hold. They embed the words of the
// project in their wire form and name beside it what that form leaves out. A
// field that is added to a word as `json:"-"` must be added here; a test walks
// over all fields.

type sandboxRecord struct {
	bothy.Sandbox
	Network        networkRecord `json:"network"`
	ProjectID      string        `json:"_project,omitempty"`
	TemplateDigest string        `json:"_template_digest,omitempty"`
	GuestKey       string        `json:"_guest_key,omitempty"`
	SnapshotID     string        `json:"_snapshot_id,omitempty"`
	EarlierID      string        `json:"_earlier_snapshot_id,omitempty"`
	HeadSnapshotID string        `json:"_head_snapshot_id,omitempty"`
	SealedSecrets  []byte        `json:"_sealed_secrets,omitempty"`
	EngineState    []byte        `json:"_engine_state,omitempty"`
	MeterState     []byte        `json:"_meter_state,omitempty"`
	Ending         *bothy.Exit   `json:"_ending,omitempty"`
	Pooled         bool          `json:"_pooled,omitempty"`
	Accelerated    bool          `json:"_require_acceleration,omitempty"`
}

// networkRecord is a Network without its methods: the wire form writes an unset
// mode as "off".
type networkRecord bothy.Network

func encodeSandbox(s *bothy.Sandbox) (string, error) {
	return encode(sandboxRecord{
		Sandbox: *s, Network: networkRecord(s.Network), ProjectID: s.ProjectID, TemplateDigest: s.TemplateDigest,
		GuestKey: s.GuestKey, SnapshotID: s.SnapshotID, HeadSnapshotID: s.HeadSnapshotID, SealedSecrets: s.SealedSecrets, EngineState: s.EngineState, MeterState: s.MeterState, Ending: s.Ending, Pooled: s.Pooled,
		Accelerated: s.RequireAcceleration, EarlierID: s.EarlierSnapshotID,
	})
}

func decodeSandbox(text string) (*bothy.Sandbox, error) {
	var r sandboxRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	s := r.Sandbox
	s.Network = bothy.Network(r.Network)
	s.ProjectID, s.TemplateDigest, s.GuestKey = r.ProjectID, r.TemplateDigest, r.GuestKey
	s.SnapshotID, s.HeadSnapshotID, s.EngineState, s.Pooled = r.SnapshotID, r.HeadSnapshotID, r.EngineState, r.Pooled
	s.EarlierSnapshotID = r.EarlierID
	s.SealedSecrets, s.MeterState, s.Ending, s.RequireAcceleration = r.SealedSecrets, r.MeterState, r.Ending, r.Accelerated
	return &s, nil
}

type snapshotRecord struct {
	bothy.Snapshot
	ProjectID string `json:"_project,omitempty"`
}

func encodeSnapshot(s *bothy.Snapshot) (string, error) {
	return encode(snapshotRecord{Snapshot: *s, ProjectID: s.ProjectID})
}

func decodeSnapshot(text string) (*bothy.Snapshot, error) {
	var r snapshotRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	s := r.Snapshot
	s.ProjectID = r.ProjectID
	return &s, nil
}

// tokenRecord leaves out the key, which is never stored, and the time of the
// last use, which has a column of its own.
type tokenRecord struct {
	bothy.Token
	Hash string `json:"_hash"`
}

func encodeToken(t *bothy.Token) (string, error) {
	c := *t
	c.Key, c.LastUsedAt = "", nil
	return encode(tokenRecord{Token: c, Hash: t.Hash})
}

func decodeToken(text string, lastUsed *int64) (*bothy.Token, error) {
	var r tokenRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	t := r.Token
	t.Hash = r.Hash
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

func encodeEvent(e *bothy.Event) (string, error) {
	return encode(eventRecord{Event: *e, ProjectID: e.ProjectID})
}

func decodeEvent(id int64, text string) (bothy.Event, error) {
	var r eventRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return bothy.Event{}, err
	}
	e := r.Event
	e.ID, e.ProjectID = id, r.ProjectID
	return e, nil
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
