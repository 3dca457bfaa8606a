package store

import "github.com/bothy-dev/bothy"

// Sandbox is the row of a sandbox: what clients see of it, and what only the server needs.
type Sandbox struct {
	bothy.Sandbox

	// RequireAcceleration refuses to resume the sandbox on a host without it.
	RequireAcceleration bool `json:"_require_acceleration,omitempty"`
	// EndWhenIdle has the sandbox ended after IdleSeconds, not paused.
	EndWhenIdle bool `json:"_end_when_idle,omitempty"`
	// TemplateDigest pins the template that the sandbox was started from.
	TemplateDigest string `json:"_template_digest,omitempty"`
	// GuestKey authenticates the server to the guest. It never leaves the server.
	GuestKey string `json:"_guest_key,omitempty"`
	// HeadSnapshotID is the snapshot that the present run began with: the parent of the
	// next one.
	HeadSnapshotID string `json:"_head_snapshot_id,omitempty"`
	// OwnSnapshotID is a snapshot that its owner took and that it slept in since its host was
	// lost: it stays when the sleep is over.
	OwnSnapshotID string `json:"_own_snapshot_id,omitempty"`
	// SealedSecrets are the secrets, encrypted with the server's own key.
	SealedSecrets []byte `json:"_sealed_secrets,omitempty"`
	// EngineState is what the engine needs to find the machine again after the server
	// restarts. Only the engine reads it.
	EngineState []byte `json:"_engine_state,omitempty"`
	// MeterState is where counting began in the present run. Only the meter reads it.
	MeterState []byte `json:"_meter_state,omitempty"`
	// Ending is why the sandbox is stopping, for a server that restarts meanwhile.
	Ending *bothy.Exit `json:"_ending,omitempty"`
	// Checkpoints are the snapshots that the server has taken of it by itself, newest first.
	Checkpoints []string `json:"_checkpoints,omitempty"`
	// Moving names the attempt to give the sandbox to another host that is under way, which
	// may take it only under this name.
	Moving string `json:"_moving,omitempty"`
	// CPULevel is that of the server which started the sandbox, and Processor what its processes
	// may use of one where that is not what such a server shows.
	CPULevel  string           `json:"_cpu_level,omitempty"`
	Processor *bothy.Processor `json:"_processor,omitempty"`
	// Pooled marks a machine that waits in a pool and has no owner yet.
	Pooled bool `json:"_pooled,omitempty"`
}

// Public returns what clients see of a row, and nil for none.
func (s *Sandbox) Public() *bothy.Sandbox {
	if s == nil {
		return nil
	}
	if s.OnHostLoss == "" { // it was written before there was a choice
		s.OnHostLoss = bothy.HostLossPause
	}
	return &s.Sandbox
}
