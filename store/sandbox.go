package store

import "github.com/bothy-dev/bothy"

// Unended are the states of sandboxes that have not ended.
var Unended = []bothy.State{bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused, bothy.StateResuming}

// Sandbox is the row of a sandbox: what clients see, and what only the server needs.
type Sandbox struct {
	bothy.Sandbox

	// Version is that of the row as it was read; 0 if it has not been stored yet.
	Version int64 `json:"-"`

	// RequireAcceleration refuses to resume the sandbox on a host without it.
	RequireAcceleration bool `json:"_require_acceleration,omitempty"`
	// EndWhenIdle has the sandbox ended after IdleSeconds, not paused.
	EndWhenIdle bool `json:"_end_when_idle,omitempty"`
	// TemplateDigest pins the template that the sandbox was started from.
	TemplateDigest string `json:"_template_digest,omitempty"`
	// GuestKey authenticates the server to the guest. It never leaves the server.
	GuestKey string `json:"_guest_key,omitempty"`
	// HeadSnapshotID is the snapshot that the current run began with: the parent of the next
	// one.
	HeadSnapshotID string `json:"_head_snapshot_id,omitempty"`
	// OwnSnapshotID is a snapshot made by the owner that the sandbox was paused in after a host
	// loss: it is kept after the resume.
	OwnSnapshotID string `json:"_own_snapshot_id,omitempty"`
	// SealedSecrets are the secrets, encrypted with secrets.key.
	SealedSecrets []byte `json:"_sealed_secrets,omitempty"`
	// EngineState is what the engine needs to find the machine again after the server
	// restarts. Only the engine reads it.
	EngineState []byte `json:"_engine_state,omitempty"`
	// MeterState is where metering began in the current run. Only the meter reads it.
	MeterState []byte `json:"_meter_state,omitempty"`
	// Ending is why the sandbox is stopping, for a server that restarts meanwhile.
	Ending *bothy.Exit `json:"_ending,omitempty"`
	// Checkpoints are the snapshots that the server has taken by itself, newest first.
	Checkpoints []string `json:"_checkpoints,omitempty"`
	// Moving identifies the current attempt to move the sandbox; the other host may take it
	// only under this id.
	Moving string `json:"_moving,omitempty"`
	// CPULevel is that of the server that started the sandbox. Processor is what its processes
	// may use, if different from what such a server shows.
	CPULevel  string           `json:"_cpu_level,omitempty"`
	Processor *bothy.Processor `json:"_processor,omitempty"`
	// Key is the idempotency key of the request that it was created by, if any, and KeyPrint
	// identifies what that asked for.
	Key      string `json:"_key,omitempty"`
	KeyPrint string `json:"_key_print,omitempty"`
	// Forking is the first copy of the fork that it was made by. The fork is complete once that
	// copy has no Forking any more.
	Forking string `json:"_forking,omitempty"`
	// Pooled marks a ready machine that has no owner yet.
	Pooled bool `json:"_pooled,omitempty"`
}

// Public returns what clients see of a row; nil for nil.
func (s *Sandbox) Public() *bothy.Sandbox {
	if s == nil {
		return nil
	}
	if s.OnHostLoss == "" { // written before this field existed
		s.OnHostLoss = bothy.HostLossPause
	}
	return &s.Sandbox
}
