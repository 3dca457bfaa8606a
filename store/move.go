package store

import (
	"context"
	"io"

	"github.com/bothy-dev/bothy"
)

// Offer is what a host tells another of a sandbox that it wants to give to it.
type Offer struct {
	ID        string      `json:"id"`
	ProjectID string      `json:"project_id"`
	State     bothy.State `json:"state"`
	// Attempt is what the sandbox's row will have for Moving, and Epoch that of the host.
	Attempt string `json:"attempt"`
	Epoch   int64  `json:"epoch"`
	// Engine, Build and Kind are those of what is to be woken.
	Engine string             `json:"engine"`
	Build  string             `json:"build"`
	Kind   bothy.SnapshotKind `json:"kind"`
	// Processor is what its processes may use of one, where that is known.
	Processor      *bothy.Processor `json:"processor,omitempty"`
	Template       string           `json:"template"`
	TemplateDigest string           `json:"template_digest"`
	MemoryMB       int              `json:"memory_mb"`
}

// Running reports whether the sandbox runs, and comes with its memory.
func (o Offer) Running() bool { return o.State == bothy.StateRunning }

// Carried is what became of a sandbox that was offered.
type Carried int

const (
	// CarriedUnknown says that no answer came: only the database knows.
	CarriedUnknown Carried = iota
	// CarriedRefused says that the other host has not taken it, and will not.
	CarriedRefused
	// CarriedOver says that it is the other host's.
	CarriedOver
)

// Departure is how a sandbox leaves its host.
type Departure struct {
	// To is the host that it is offered to, and Epoch this host's.
	To    string
	Epoch int64
	// Park has new requests to the sandbox wait until unpark is called. It returns once those
	// that are under way have ended, or have taken too long.
	Park func(ctx context.Context) (unpark func())
	// Carry offers the sandbox, and calls send once it is accepted. It returns after send.
	Carry func(ctx context.Context, o Offer, send func(io.Writer) error) (Carried, error)
}
