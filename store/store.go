// Package store defines what must survive the server: one interface, with one
// suite of tests (storetest) that every implementation passes. Only services
// (lifecycle, access, template) use it, and the door that keeps answers (api).
package store

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
)

// Store keeps sandboxes, snapshots, projects, tokens and events.
//
// A method returns when its change is durable: a crash of the server right
// after it loses nothing. What outlives the machines of this host (tokens,
// snapshots, paused sandboxes) is safe from a power cut as well; a running
// sandbox is not, nor is its row. Get methods return a *bothy.Error with the object's own not-found
// code. Values passed in and returned belong to the caller: the store keeps
// copies. All methods may be called from many goroutines at once.
type Store interface {
	// PutSandbox stores a new sandbox, or replaces the one with its id.
	PutSandbox(ctx context.Context, s *Sandbox) error
	Sandbox(ctx context.Context, id string) (*Sandbox, error)
	// Sandboxes lists a project's sandboxes, newest first.
	Sandboxes(ctx context.Context, projectID string, f bothy.SandboxFilter) (bothy.Page[*Sandbox], error)
	// SandboxesInState lists sandboxes of all projects, for the server itself.
	SandboxesInState(ctx context.Context, states ...bothy.State) ([]*Sandbox, error)
	// OwnSandboxesInState lists those of them that are this server's. Where it shares the
	// store with others, each sandbox is one server's.
	OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*Sandbox, error)
	// SandboxesToResume lists at most limit sandboxes that are to be resumed by a time, because
	// they lost their host, and that are this server's or nobody's, those that wait longest first.
	SandboxesToResume(ctx context.Context, by time.Time, limit int) ([]*Sandbox, error)
	// DeleteSandboxesEndedBefore forgets ended sandboxes and returns how many.
	DeleteSandboxesEndedBefore(ctx context.Context, t time.Time) (int, error)

	PutSnapshot(ctx context.Context, s *bothy.Snapshot) error
	// UpdateSnapshot replaces the record of a snapshot that still exists. One that was
	// deleted meanwhile stays deleted.
	UpdateSnapshot(ctx context.Context, s *bothy.Snapshot) error
	Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error)
	Snapshots(ctx context.Context, projectID string, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error)
	// AllSnapshots lists the snapshots of all projects, for the server itself.
	AllSnapshots(ctx context.Context) ([]*bothy.Snapshot, error)
	// OwnSnapshots lists those of sandboxes that are this server's, or were to their end.
	OwnSnapshots(ctx context.Context) ([]*bothy.Snapshot, error)
	// SnapshotSum counts a project's snapshots and adds up their sizes; with "" those
	// of all projects.
	SnapshotSum(ctx context.Context, projectID string) (count int, bytes int64, err error)
	DeleteSnapshot(ctx context.Context, id string) error

	PutToken(ctx context.Context, t *bothy.Token) error
	// TokenByHash finds a token by the hash of its key.
	TokenByHash(ctx context.Context, hash string) (*bothy.Token, error)
	// TokenHashes lists the hashes of all keys.
	TokenHashes(ctx context.Context) ([]string, error)
	Tokens(ctx context.Context, projectID string) ([]*bothy.Token, error)
	// DeleteToken deletes the token's links as well.
	DeleteToken(ctx context.Context, projectID, id string) error
	TouchToken(ctx context.Context, id string, usedAt time.Time) error

	// AddLink stores a new link: CodeConflict when its token or its sandbox is gone,
	// or the sandbox has ended. The links of a sandbox that ends are deleted with the
	// same change. The link's URL is not kept.
	AddLink(ctx context.Context, l *bothy.Link) error
	Link(ctx context.Context, id string) (*bothy.Link, error)
	// Links lists a sandbox's links, newest first, with those that have expired.
	Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error)
	// CountLinks counts all links of a project, and those of one of its sandboxes.
	CountLinks(ctx context.Context, projectID, sandboxID string) (project, sandbox int, err error)
	DeleteLink(ctx context.Context, sandboxID, id string) error
	// DeleteLinksExpiredBefore forgets links and returns how many.
	DeleteLinksExpiredBefore(ctx context.Context, t time.Time) (int, error)

	// PutWebhook stores a new webhook, or replaces the one with its id, but for its
	// state. The secret is kept only sealed.
	PutWebhook(ctx context.Context, w *Webhook) error
	Webhook(ctx context.Context, projectID, id string) (*Webhook, error)
	// Webhooks lists a project's, oldest first; with "" those of all projects.
	Webhooks(ctx context.Context, projectID string) ([]*Webhook, error)
	// SetWebhookState changes how far a webhook has come. One that is gone is fine.
	SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error
	DeleteWebhook(ctx context.Context, projectID, id string) error

	// PutAgents stores a new attachment, or replaces the one with its id. How it goes with
	// it is not kept.
	PutAgents(ctx context.Context, a *AgentAttachment) error
	// Agents lists a project's, oldest first; with "" those of all projects.
	Agents(ctx context.Context, projectID string) ([]*AgentAttachment, error)
	// DeleteAgents deletes an attachment with its sessions.
	DeleteAgents(ctx context.Context, projectID, id string) error
	// PutAgentSession stores a session's record, replacing any earlier one.
	PutAgentSession(ctx context.Context, attachment, session string, record []byte) error
	// AgentSessions returns those of an attachment by their ids.
	AgentSessions(ctx context.Context, attachment string) (map[string][]byte, error)
	// DeleteAgentSession forgets a session. One that is gone is fine.
	DeleteAgentSession(ctx context.Context, attachment, session string) error

	// AddLogin stores a new login or code. Those of its kind that expired by the time it was made
	// are forgotten, and, beyond the bounds, the oldest.
	AddLogin(ctx context.Context, l *Login, b LoginBounds) error
	// Login finds a login or code by its hash, though it may have expired: CodeNotFound where
	// there is none. TakeLogin forgets it as well: of two that take it one has it.
	Login(ctx context.Context, hash string) (*Login, error)
	TakeLogin(ctx context.Context, hash string) (*Login, error)
	// HaveLogins returns those of the hashes that are known.
	HaveLogins(ctx context.Context, hashes []string) ([]string, error)
	// DeleteLogin forgets a login. One that is gone is fine.
	DeleteLogin(ctx context.Context, hash string) error

	// AddProject stores a new project: CodeConflict when there is one of its id.
	AddProject(ctx context.Context, p *bothy.Project) error
	// SetPlan changes a project's plan.
	SetPlan(ctx context.Context, id, plan string) error
	Project(ctx context.Context, id string) (*bothy.Project, error)
	// Projects lists all projects by name.
	Projects(ctx context.Context) ([]*bothy.Project, error)

	// AddEvent stores an event and sets its ID.
	AddEvent(ctx context.Context, e *bothy.Event) error
	// Events returns up to limit events of a project with an id above since.
	Events(ctx context.Context, projectID string, since int64, limit int) ([]bothy.Event, error)
	// EventsBefore returns up to limit events of a project with an id below before, the
	// newest first.
	EventsBefore(ctx context.Context, projectID string, before int64, limit int) ([]bothy.Event, error)
	// LastEvent returns the id of the newest event of all projects, 0 before the first.
	LastEvent(ctx context.Context) (int64, error)
	// DeleteEventsBefore forgets old events and returns how many.
	DeleteEventsBefore(ctx context.Context, t time.Time) (int, error)

	// ReserveAnswer starts a request that carries an idempotency key. It
	// returns nil if the key was free: it is then taken, and the caller works
	// on the request and then calls either StoreAnswer or ForgetAnswer.
	// Otherwise it returns the existing answer, with Status 0 while another
	// request with this key is still in progress. Answers are forgotten a day
	// after the reservation, and reservations when the store is opened: their
	// requests died with the server that held them. The size per project and in
	// total is limited: the oldest answers first lose their bodies, and then
	// their keys.
	ReserveAnswer(ctx context.Context, projectID, key, fingerprint string) (*Answer, error)
	// StoreAnswer keeps the reply to a reserved request. Fingerprint and
	// CreatedAt stay those of the reservation. One that is Dropped, or too large,
	// is kept without its body.
	StoreAnswer(ctx context.Context, projectID, key string, a Answer) error
	// ForgetAnswer frees a key, so that the request can be tried again.
	ForgetAnswer(ctx context.Context, projectID, key string) error

	// Places lists the places in object storage of this store's servers: the one that is used,
	// if any is, and those that a server is about to mark.
	Places(ctx context.Context) ([]Place, error)
	// AddPlace writes down a place that a server is about to mark as this store's.
	AddPlace(ctx context.Context, p Place) error
	// UsePlace makes a place the one that is used unless another is, forgets those that were
	// to be marked, and returns the one that is used.
	UsePlace(ctx context.Context, p Place) (Place, error)
	// ForgetPlaces forgets all places, so that another can be used.
	ForgetPlaces(ctx context.Context) error

	// AuditEnds returns the ends of the audit's chain.
	AuditEnds(ctx context.Context) (AuditEnds, error)
	// AppendAudit adds lines to the end of the chain: all of them or none. They
	// survive a power cut. Where servers share the store it fails with ErrAuditMoved if the
	// first line does not follow the last one, since another server has added to it.
	AppendAudit(ctx context.Context, lines []AuditLine) error
	// AuditLines returns up to f.Limit lines as f has it, with ID, Record and
	// Hash.
	AuditLines(ctx context.Context, f bothy.AuditFilter) ([]AuditLine, error)
	// DeleteAuditBefore deletes the beginning of the chain, up to the first line
	// that is not older than t, but at most that many lines, and returns how many.
	DeleteAuditBefore(ctx context.Context, t time.Time, most int) (int, error)

	Close() error
}

// Place is a place in object storage. It has an object that names it.
type Place struct {
	ID string
	// Location says for people where it was when it was used last.
	Location  string
	CreatedAt time.Time
	// Used says that it is the one that the servers of the store use.
	Used bool
}

// ErrAuditMoved says that the audit's chain has another end by now.
var ErrAuditMoved = errors.New("the audit has another end by now")

// AuditLine is a link of the audit's chain. Record is what was hashed.
type AuditLine struct {
	ID        int64
	Time      time.Time
	ProjectID string
	TokenID   string
	SandboxID string
	Action    string
	Status    int
	Record    string
	Hash      string
}

// AuditEnds are the ends of the audit's chain: what its first line follows, and
// its last line. They are zero before anything was written.
type AuditEnds struct {
	AfterID   int64
	AfterHash string
	LastID    int64
	LastHash  string
}

// Answer is a stored reply to a request with an idempotency key.
type Answer struct {
	// Fingerprint identifies the request's method, path and body.
	Fingerprint string
	// Status is 0 while the first request is still being worked on.
	Status    int
	Header    map[string]string
	Body      []byte
	CreatedAt time.Time
	// Dropped says that the request was done, and Header and Body were not kept.
	Dropped bool
}

// AnswerBounds limit what is kept for idempotency keys.
type AnswerBounds struct {
	// ProjectBytes and ProjectKeys are for one project, and Bytes for all.
	ProjectBytes, Bytes int64
	ProjectKeys         int64
}

// DefaultAnswerBounds hold some 100,000 small answers of a project.
var DefaultAnswerBounds = AnswerBounds{ProjectBytes: 64 << 20, Bytes: 512 << 20, ProjectKeys: 100_000}
