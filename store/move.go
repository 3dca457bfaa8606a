package store

import (
	"context"
	"io"

	"github.com/bothy-dev/bothy"
)

// Offer describes a sandbox that a host wants to move to another.
type Offer struct {
	ID        string      `json:"id"`
	ProjectID string      `json:"project_id"`
	State     bothy.State `json:"state"`
	// Attempt is the value of Moving in the sandbox's row, and Epoch the host's epoch.
	Attempt string `json:"attempt"`
	Epoch   int64  `json:"epoch"`
	// Engine, Build and Kind describe the memory to restore.
	Engine string             `json:"engine"`
	Build  string             `json:"build"`
	Kind   bothy.SnapshotKind `json:"kind"`
	// Processor is what its processes may use, if known.
	Processor      *bothy.Processor `json:"processor,omitempty"`
	Template       string           `json:"template"`
	TemplateDigest string           `json:"template_digest"`
	MemoryMB       int              `json:"memory_mb"`
}

// Running reports whether the sandbox is running, and moves with its memory.
func (o Offer) Running() bool { return o.State == bothy.StateRunning }

// Carried is the outcome of an offer.
type Carried int

const (
	// CarriedUnknown means that no answer came: only the database knows.
	CarriedUnknown Carried = iota
	// CarriedRefused means that the other host has not taken it and will not.
	CarriedRefused
	// CarriedOver means that the other host owns it.
	CarriedOver
)

// Departure configures a move to another host.
type Departure struct {
	// To is the other host, and Epoch this host's epoch.
	To    string
	Epoch int64
	// Park holds new requests to the sandbox until unpark is called. It returns once those in
	// flight have ended or taken too long.
	Park func(ctx context.Context) (unpark func())
	// Carry offers the sandbox, and calls send once it is accepted. It returns after send.
	Carry func(ctx context.Context, o Offer, send func(io.Writer) error) (Carried, error)
}
