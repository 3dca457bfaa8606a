// Package agents is the worker for self-hosted environments of Claude Managed Agents.
//
// A worker polls an environment's queue for sessions, gives each a sandbox, and runs the tools
// that the session's agent calls in it. Whatever must not be lost or done twice is stored before
// it begins: claimed work, and the progress of each call. So after a crash the next server
// continues in the same sandboxes.
package agents

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// maxPerProject bounds the attachments of a project.
const maxPerProject = 20

// defaultSessions is how many sessions are processed at once unless the caller says otherwise.
const defaultSessions = 10

// Store is what the service needs of store.Store.
type Store interface {
	PutAgents(ctx context.Context, a *store.AgentAttachment) error
	Agents(ctx context.Context, projectID string) ([]*store.AgentAttachment, error)
	DeleteAgents(ctx context.Context, projectID, id string) error
	PutAgentSession(ctx context.Context, attachment, session string, record []byte) error
	AgentSessions(ctx context.Context, attachment string) (map[string][]byte, error)
	DeleteAgentSession(ctx context.Context, attachment, session string) error
}

// Vault encrypts what is in the store.
type Vault interface {
	Seal(plain []byte, bound string) ([]byte, error)
	Open(sealed []byte, bound string) ([]byte, error)
}

// Sandboxes is what the service needs of bothy.SandboxService.
type Sandboxes interface {
	// CheckCreate returns the error with which Create would always refuse a request.
	CheckCreate(ctx context.Context, req bothy.SandboxCreate) error
	Create(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error)
	Get(ctx context.Context, id string) (*bothy.Sandbox, error)
	List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error)
	Terminate(ctx context.Context, id string) error
}

// Sleeper pauses and resumes sandboxes.
type Sleeper interface {
	Pause(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error)
	Resume(ctx context.Context, id string, o bothy.ResumeOptions) (*bothy.Sandbox, error)
}

// Commands runs commands in sandboxes.
type Commands interface {
	Exec(ctx context.Context, id string, req bothy.ExecRequest) (*bothy.ExecResult, error)
	ExecStream(ctx context.Context, id string, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error
	Processes(ctx context.Context, id string) ([]bothy.ProcessInfo, error)
	Output(ctx context.Context, id string, pid int, from int64, fn func(bothy.ExecEvent) error) error
	Stdin(ctx context.Context, id string, pid int, data []byte, eof bool) error
	Signal(ctx context.Context, id string, pid int, signal int) error
}

// Keys knows the keys of the API.
type Keys interface {
	// HoldID calls end when the project's key with an id is revoked or expires, unless release is
	// called first. It is an error if there is no such key.
	HoldID(ctx context.Context, projectID, id string, end func(cause error)) (caller *bothy.Caller, release func(), err error)
}

// Options are what a Service is made of.
type Options struct {
	Keys      Keys
	Store     Store
	Vault     Vault
	Sandboxes Sandboxes
	Sleeper   Sleeper
	Commands  Commands
	Files     bothy.FileService
	// Transport reaches the queues, and decides which addresses are allowed.
	Transport http.RoundTripper
	// Repack is repack.Confined, or repack.Here where there are no rights to confine it.
	Repack func(ctx context.Context, archive *os.File, folder string, w io.Writer) error
	// Dir is a folder for archives of skills while they are fetched. Its content is removed.
	Dir string
	Log *slog.Logger
}

// Service is the bothy.AgentService, and works while Run runs.
type Service struct {
	o   Options
	use *usage

	changing sync.Mutex // held from reading attachments to changing them

	mu      sync.Mutex
	run     context.Context // nil while Run is not running
	workers map[string]*worker
}

var _ bothy.AgentService = (*Service)(nil)

// New returns a service. It does no work before Run.
func New(o Options) *Service { return &Service{o: o, use: newUsage(), workers: map[string]*worker{}} }

// sealed is the encrypted part of an attachment.
type sealed struct {
	Key     string         `json:"key"`
	Secrets []bothy.Secret `json:"secrets,omitempty"`
}

// AttachAgents implements bothy.AgentService.
func (s *Service) AttachAgents(ctx context.Context, req bothy.AgentAttach) (*bothy.AgentAttachment, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	asked, secret, err := attachmentOf(req)
	if err != nil {
		return nil, err
	}
	if err := s.o.Sandboxes.CheckCreate(ctx, sandboxOf(asked, secret, nil)); err != nil {
		return nil, err
	}
	a := &store.AgentAttachment{AgentAttachment: *asked}
	a.ProjectID = caller.ProjectID
	if strings.HasPrefix(caller.TokenID, "tok_") { // a program in the server has no key
		a.TokenID = caller.TokenID
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.o.Store.Agents(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	for _, old := range all {
		if old.Environment == a.Environment && old.URL == a.URL {
			a.ID, a.CreatedAt = old.ID, old.CreatedAt
		}
	}
	if a.ID == "" {
		if len(all) >= maxPerProject {
			return nil, bothy.Errorf(bothy.CodeQuota, "the project has %d environments attached, which is the most there can be", len(all)).
				WithHint("Detach one that is not needed: `bothy agents detach ID`.")
		}
		a.ID, a.CreatedAt = "agt_"+random.Hex(8), time.Now().UTC()
	}
	plain, err := json.Marshal(secret)
	if err != nil {
		return nil, err
	}
	if a.Sealed, err = s.o.Vault.Seal(plain, boundTo(a.ID)); err != nil {
		return nil, err
	}
	s.stop(a.ID, errReplaced)
	if err := s.o.Store.PutAgents(ctx, a); err != nil {
		return nil, err
	}
	if err := s.start(ctx, a); err != nil {
		return nil, err
	}
	return s.shown(ctx, a)
}

// AgentAttachments implements bothy.AgentService.
func (s *Service) AgentAttachments(ctx context.Context) ([]*bothy.AgentAttachment, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	rows, err := s.o.Store.Agents(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	all := make([]*bothy.AgentAttachment, len(rows))
	for i, a := range rows {
		if all[i], err = s.shown(ctx, a); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// AgentAttachment implements bothy.AgentService. An attachment is also found by its environment.
func (s *Service) AgentAttachment(ctx context.Context, id string) (*bothy.AgentAttachment, error) {
	all, err := s.AgentAttachments(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.ID == id || a.Environment == id {
			return a, nil
		}
	}
	return nil, bothy.Errorf(bothy.CodeNotFound, "no environment is attached as %q", id).
		WithHint("List what is attached with `bothy agents ls` or GET /v1/agents.")
}

// DetachAgents implements bothy.AgentService.
func (s *Service) DetachAgents(ctx context.Context, id string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	a, err := s.AgentAttachment(ctx, id)
	if err != nil {
		return err
	}
	s.stop(a.ID, errDetached)
	return s.o.Store.DeleteAgents(ctx, a.ProjectID, a.ID)
}

// Run works until ctx ends. Claimed work stays claimed, for the next server to continue.
func (s *Service) Run(ctx context.Context) error {
	clearDir(s.o.Dir)
	s.changing.Lock()
	all, err := s.o.Store.Agents(ctx, "")
	if err == nil {
		s.mu.Lock()
		s.run = ctx
		s.mu.Unlock()
		for _, a := range all {
			if err := s.start(ctx, a); err != nil {
				s.o.Log.Error("an environment of managed agents has no worker", "attachment", a.ID, "error", err)
			}
		}
	}
	s.changing.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	s.run = nil
	running := s.workers
	s.workers = map[string]*worker{}
	s.mu.Unlock()
	for _, w := range running {
		w.stop(errClosing)
	}
	return nil
}

// start starts a worker for an attachment, if Run is running.
func (s *Service) start(ctx context.Context, a *store.AgentAttachment) error {
	s.mu.Lock()
	run := s.run
	s.mu.Unlock()
	if run == nil {
		return nil
	}
	w, err := newWorker(ctx, s.o, s.use, a)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.workers[a.ID] = w
	s.mu.Unlock()
	w.start(context.WithoutCancel(run)) // ended by stop, which says why
	return w.hold(ctx, a)
}

// stop ends the work for an attachment, and waits for it.
func (s *Service) stop(id string, why error) {
	s.mu.Lock()
	w := s.workers[id]
	delete(s.workers, id)
	s.mu.Unlock()
	if w != nil {
		w.stop(why)
	}
}

// shown is a caller's view of an attachment.
func (s *Service) shown(ctx context.Context, a *store.AgentAttachment) (*bothy.AgentAttachment, error) {
	s.mu.Lock()
	w := s.workers[a.ID]
	s.mu.Unlock()
	shown := a.AgentAttachment
	shown.State, shown.Sessions = bothy.AgentsWaiting, []bothy.AgentSession{}
	if w != nil {
		w.show(&shown)
		return &shown, nil
	}
	records, err := s.o.Store.AgentSessions(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	for id, b := range records {
		r, err := openRecord(s.o.Vault, a.ID, id, b)
		if err != nil {
			return nil, err
		}
		shown.Sessions = append(shown.Sessions, r.shown(id))
	}
	sortSessions(shown.Sessions)
	return &shown, nil
}

// boundTo keeps encrypted data from being moved to another attachment.
func boundTo(id string) string { return "agents " + id }
