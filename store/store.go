// Package store defines what must survive the server: one interface, and one test suite
// (storetest) that every implementation passes. Services (lifecycle, access, template…) use it,
// and api for stored answers.
//
// # Versions
//
// The row of a sandbox has a version, which grows by one with each change of what Sandbox
// contains. A writer states the version that it has read, and writes nothing if the row has
// another: so a writer with an old view never overwrites a newer one, whether it is a second
// process, a host that was replaced, or one whose database was restored from a backup. Such a
// write fails with a *Conflict.
//
// What changes a row without having read it, because its owner is gone, increases the version:
// giving up a host, taking and releasing a sandbox. The owner columns themselves (host,
// host_epoch) are not part of the record, and PutSandbox does not write them. A claim changes
// only them, but increases the version as well, since the new owner reads the row next and
// nothing read before the claim may be written after it. A host that starts again gets a new
// epoch for its rows without new versions, since no process has read them under that epoch.
// Links and snapshots have their own rows, and refer to a sandbox without changing its row.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bothy-dev/bothy"
)

// Store keeps sandboxes, snapshots, projects, tokens, events and more.
//
// A method returns once its change is durable: a crash of the server loses nothing. What
// outlives the machines of this host (tokens, snapshots, paused sandboxes) also survives a
// power cut; the rows of running sandboxes may not. Get methods return a *bothy.Error with the
// object's own not-found code. Values passed in and returned belong to the caller. All methods
// are safe for concurrent use.
type Store interface {
	// PutSandbox stores a new sandbox, whose Version is 0, or replaces the row that s was read
	// from. It sets s.Version to the new version. If that row has changed since, nothing is
	// stored and the error has a *Conflict as its cause. If another sandbox has the Key of a new
	// one, nothing is stored and the error is that of KeyTaken.
	PutSandbox(ctx context.Context, s *Sandbox) error
	// SandboxByKey returns the sandbox that was created under an idempotency key since a time,
	// unless it has ended. CodeSandboxNotFound if there is none. A key can be used again after
	// KeyLife.
	SandboxByKey(ctx context.Context, projectID, key string, since time.Time) (*Sandbox, error)
	Sandbox(ctx context.Context, id string) (*Sandbox, error)
	// Sandboxes lists a project's sandboxes, newest first.
	Sandboxes(ctx context.Context, projectID string, f bothy.SandboxFilter) (bothy.Page[*Sandbox], error)
	// SandboxesInState lists sandboxes of all projects, for the server itself.
	SandboxesInState(ctx context.Context, states ...bothy.State) ([]*Sandbox, error)
	// OwnSandboxesInState lists only the sandboxes that this server owns. Servers may share a
	// store, but each sandbox has one owner.
	OwnSandboxesInState(ctx context.Context, states ...bothy.State) ([]*Sandbox, error)
	// SandboxesToResume lists at most limit sandboxes that are due to be resumed by a time
	// because they lost their host, and that this server or no server owns, longest waiting
	// first.
	SandboxesToResume(ctx context.Context, by time.Time, limit int) ([]*Sandbox, error)
	// DeleteSandboxesEndedBefore deletes ended sandboxes and returns how many.
	DeleteSandboxesEndedBefore(ctx context.Context, t time.Time) (int, error)

	PutSnapshot(ctx context.Context, s *bothy.Snapshot) error
	// AddSnapshot is PutSnapshot for one that counts against its project's quota. With those
	// that all servers have stored it is within the quota, or it is not stored and the error is
	// an *OverQuota.
	AddSnapshot(ctx context.Context, s *bothy.Snapshot, q SnapshotQuota) error
	// SetSnapshotDurable changes only where a snapshot is kept, in one step, and returns it as it
	// is then and whether that changed. One that was deleted meanwhile stays deleted:
	// CodeSnapshotNotFound.
	SetSnapshotDurable(ctx context.Context, id string, d bothy.Durable) (n *bothy.Snapshot, changed bool, err error)
	Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error)
	Snapshots(ctx context.Context, projectID string, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error)
	// AllSnapshots lists the snapshots of all projects, for the server itself.
	AllSnapshots(ctx context.Context) ([]*bothy.Snapshot, error)
	// OwnSnapshots lists the snapshots of sandboxes that this server owns, or owned until they
	// ended.
	OwnSnapshots(ctx context.Context) ([]*bothy.Snapshot, error)
	// SnapshotSum counts a project's snapshots and adds up their sizes; with "" those
	// of all projects.
	SnapshotSum(ctx context.Context, projectID string) (count int, bytes int64, err error)
	DeleteSnapshot(ctx context.Context, id string) error

	PutToken(ctx context.Context, t *Token) error
	// TokenByHash finds a token by the hash of its key.
	TokenByHash(ctx context.Context, hash string) (*Token, error)
	// TokenHashes lists the hashes of all keys.
	TokenHashes(ctx context.Context) ([]string, error)
	Tokens(ctx context.Context, projectID string) ([]*Token, error)
	// DeleteToken deletes the token's links as well.
	DeleteToken(ctx context.Context, projectID, id string) error
	TouchToken(ctx context.Context, id string, usedAt time.Time) error

	// AddLink stores a new link. It returns CodeConflict if its token or its sandbox is gone,
	// or the sandbox has ended. When a sandbox ends, its links are deleted in the same
	// transaction. The link's URL is not stored. With those that all servers have stored it is
	// within the bounds, or it is not stored and the error is a *TooManyLinks.
	AddLink(ctx context.Context, l *bothy.Link, b LinkBounds) error
	Link(ctx context.Context, id string) (*bothy.Link, error)
	// Links lists a sandbox's links, newest first, including expired ones.
	Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error)
	// CountLinks counts all links of a project, and those of one of its sandboxes.
	CountLinks(ctx context.Context, projectID, sandboxID string) (project, sandbox int, err error)
	DeleteLink(ctx context.Context, sandboxID, id string) error
	// DeleteLinksExpiredBefore deletes links and returns how many.
	DeleteLinksExpiredBefore(ctx context.Context, t time.Time) (int, error)

	// PutWebhook stores a new webhook, or replaces the one with its id, except for its state.
	// The secret is stored only sealed.
	PutWebhook(ctx context.Context, w *Webhook) error
	Webhook(ctx context.Context, projectID, id string) (*Webhook, error)
	// Webhooks lists a project's webhooks, oldest first; with "" those of all projects.
	Webhooks(ctx context.Context, projectID string) ([]*Webhook, error)
	// SetWebhookState updates a webhook's progress. A missing webhook is not an error.
	SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error
	DeleteWebhook(ctx context.Context, projectID, id string) error

	// PutAgents stores a new attachment, or replaces the one with its id. Its current status is
	// not stored.
	PutAgents(ctx context.Context, a *AgentAttachment) error
	// Agents lists a project's attachments, oldest first; with "" those of all projects.
	Agents(ctx context.Context, projectID string) ([]*AgentAttachment, error)
	// DeleteAgents deletes an attachment with its sessions.
	DeleteAgents(ctx context.Context, projectID, id string) error
	// PutAgentSession stores a session's record, replacing any earlier one.
	PutAgentSession(ctx context.Context, attachment, session string, record []byte) error
	// AgentSessions returns the records of an attachment's sessions by id.
	AgentSessions(ctx context.Context, attachment string) (map[string][]byte, error)
	// DeleteAgentSession deletes a session. A missing one is not an error.
	DeleteAgentSession(ctx context.Context, attachment, session string) error

	// AddLogin stores a new login or code. It deletes those of its kind that have expired and,
	// beyond the bounds, the oldest.
	AddLogin(ctx context.Context, l *Login, b LoginBounds) error
	// Login finds a login or code by its hash, even if it has expired; CodeNotFound if there is
	// none. TakeLogin also deletes it: only one of two concurrent callers gets it.
	Login(ctx context.Context, hash string) (*Login, error)
	TakeLogin(ctx context.Context, hash string) (*Login, error)
	// HaveLogins returns which of the hashes exist.
	HaveLogins(ctx context.Context, hashes []string) ([]string, error)
	// DeleteLogin deletes a login. A missing one is not an error.
	DeleteLogin(ctx context.Context, hash string) error

	// AddProject stores a new project; CodeConflict if its id exists.
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
	// EventsBefore returns up to limit events of a project with an id below before, newest
	// first.
	EventsBefore(ctx context.Context, projectID string, before int64, limit int) ([]bothy.Event, error)
	// LastEvent returns the id of the newest event of all projects, 0 before the first.
	LastEvent(ctx context.Context) (int64, error)
	// DeleteEventsBefore deletes old events and returns how many.
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
	// ReserveOnce is ReserveAnswer for a request that must not be executed twice. Its
	// reservation also outlives the server that made it: from then on the key has the answer
	// Unknown.
	ReserveOnce(ctx context.Context, projectID, key, fingerprint string) (*Answer, error)
	// StoreAnswer stores the reply to a reserved request. Fingerprint and CreatedAt stay those
	// of the reservation. A reply that is Dropped or too large is stored without its body.
	StoreAnswer(ctx context.Context, projectID, key string, a Answer) error
	// ForgetAnswer frees a key, so that the request can be tried again.
	ForgetAnswer(ctx context.Context, projectID, key string) error

	// Places lists the places in object storage of this store's servers: the one in use, if
	// any, and those about to be marked.
	Places(ctx context.Context) ([]Place, error)
	// AddPlace records a place that a server is about to mark.
	AddPlace(ctx context.Context, p Place) error
	// UsePlace makes a place the one in use unless another is, deletes those that were to be
	// marked, and returns the one in use.
	UsePlace(ctx context.Context, p Place) (Place, error)
	// ForgetPlaces deletes all places, so that another can be used.
	ForgetPlaces(ctx context.Context) error

	// AuditEnds returns the ends of the audit's chain.
	AuditEnds(ctx context.Context) (AuditEnds, error)
	// AppendAudit adds lines to the end of the chain: all of them or none. They survive a power
	// cut. If another server sharing the store has added lines, so that the first line does not
	// follow the last one, it returns ErrAuditMoved.
	AppendAudit(ctx context.Context, lines []AuditLine) error
	// AuditLines returns up to f.Limit lines that match f, with ID, Record and Hash.
	AuditLines(ctx context.Context, f bothy.AuditFilter) ([]AuditLine, error)
	// DeleteAuditBefore deletes from the beginning of the chain up to the first line not older
	// than t, at most the given number of lines, and returns how many.
	DeleteAuditBefore(ctx context.Context, t time.Time, most int) (int, error)

	Close() error
}

// KeyLife is how long an idempotency key belongs to the request that used it first.
const KeyLife = 24 * time.Hour

// KeyTaken is the error for a new sandbox whose Key another one has.
func KeyTaken() error {
	e := bothy.Errorf(bothy.CodeConflict, "another request with the same Idempotency-Key has just created a sandbox").
		WithHint("Ask again in a second, with the same key: the answer will be that sandbox.")
	e.RetryAfter = time.Second
	return e
}

// SnapshotQuota bounds the snapshots of a project.
type SnapshotQuota struct {
	// Bytes is the quota; 0 is none.
	Bytes int64
	// Replaced is how many bytes are deleted once the new snapshot is stored.
	Replaced int64
}

// OverQuota says that one more would exceed a project's quota.
type OverQuota struct {
	// Used is how many bytes are used without it.
	Used int64
}

func (o *OverQuota) Error() string {
	return fmt.Sprintf("one more would exceed the project's quota, of which %d bytes are used", o.Used)
}

// LinkBounds limit how many links there may be; 0 means no limit.
type LinkBounds struct{ Project, Sandbox int }

// TooManyLinks says that one more link would exceed LinkBounds.
type TooManyLinks struct {
	// Project and Sandbox are how many the project and the sandbox have.
	Project, Sandbox int
}

func (e *TooManyLinks) Error() string {
	return fmt.Sprintf("one more would exceed the bounds of links: the project has %d, and the sandbox %d", e.Project, e.Sandbox)
}

// Exceeded returns the error if a project and a sandbox with so many links may have no more.
func (b LinkBounds) Exceeded(project, sandbox int) error {
	if b.Project > 0 && project >= b.Project || b.Sandbox > 0 && sandbox >= b.Sandbox {
		return &TooManyLinks{Project: project, Sandbox: sandbox}
	}
	return nil
}

// Place is a place in object storage. An object there contains its id.
type Place struct {
	ID string
	// Location is its last known location, for people.
	Location  string
	CreatedAt time.Time
	// Used marks the one that the store's servers use.
	Used bool
}

// ErrAuditMoved means that another server has extended the audit's chain.
var ErrAuditMoved = errors.New("another server has extended the audit's chain")

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

// AuditEnds are the ends of the audit's chain: what its first line follows, and its last line.
// They are zero for an empty chain.
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
	// Dropped means that the request was completed, but Header and Body were not stored. With
	// Status 0 it is a reservation of ReserveOnce.
	Dropped bool
	// Unknown means that the server that worked on a request of ReserveOnce is gone. Status is 0.
	Unknown bool
}

// AnswerBounds limit what is stored for idempotency keys.
type AnswerBounds struct {
	// ProjectBytes and ProjectKeys are per project, and Bytes is the total.
	ProjectBytes, Bytes int64
	ProjectKeys         int64
}

// DefaultAnswerBounds suffice for about 100,000 small answers of a project.
var DefaultAnswerBounds = AnswerBounds{ProjectBytes: 64 << 20, Bytes: 512 << 20, ProjectKeys: 100_000}
