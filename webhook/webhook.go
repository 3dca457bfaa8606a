// Package webhook sends the events of a project to its URLs.
//
// There is no separate queue for a receiver: the pending events are those after the last
// processed one, which the store has anyway. So a crash loses nothing, and at worst an event is
// sent again.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// maxPerProject bounds the webhooks of a project.
const maxPerProject = 20

// Store is what the service needs of store.Store.
type Store interface {
	PutWebhook(ctx context.Context, w *store.Webhook) error
	Webhook(ctx context.Context, projectID, id string) (*store.Webhook, error)
	Webhooks(ctx context.Context, projectID string) ([]*store.Webhook, error)
	SetWebhookState(ctx context.Context, id string, st bothy.WebhookState) error
	DeleteWebhook(ctx context.Context, projectID, id string) error
	LastEvent(ctx context.Context) (int64, error)
}

// Vault seals secrets for the store.
type Vault interface {
	Seal(plain []byte, bound string) ([]byte, error)
	Open(sealed []byte, bound string) ([]byte, error)
}

// An Encoder encodes an event in one format of requests: the body, and the headers without the
// content type. A nil body means that the format has no such event. Its context is that of a
// caller who may read the project.
type Encoder func(ctx context.Context, w *bothy.Webhook, secret string, e bothy.Event, sent time.Time) (body []byte, h http.Header, err error)

// Options are what a Service is made of.
type Options struct {
	Store  Store
	Events bothy.EventService
	Vault  Vault
	// Formats are those in addition to the standard one.
	Formats map[bothy.WebhookFormat]Encoder
	Log     *slog.Logger
	// Transport sends the requests, and decides which addresses are reached. Required.
	Transport http.RoundTripper
}

// Service is the bothy.WebhookService, and delivers while Run runs.
type Service struct {
	o      Options
	client *http.Client

	changing sync.Mutex // held from reading webhooks to changing them

	mu      sync.Mutex
	run     context.Context // nil while Run is not running
	senders map[string]*sender
	ended   sync.WaitGroup
}

var _ bothy.WebhookService = (*Service)(nil)

// New returns a service. It sends nothing before Run.
func New(o Options) *Service {
	return &Service{o: o, senders: map[string]*sender{}, client: &http.Client{
		Transport: o.Transport, Timeout: attemptTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// CreateWebhook implements bothy.WebhookService. It sends the events that follow it.
func (s *Service) CreateWebhook(ctx context.Context, req bothy.WebhookCreate) (*bothy.Webhook, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	if req.Format == "" {
		req.Format = bothy.WebhookStandard
	}
	if req.Secret == "" {
		req.Secret = newSecret()
	}
	w := &store.Webhook{Webhook: bothy.Webhook{
		ID: "whk_" + random.Hex(8), Name: req.Name, URL: req.URL, Events: req.Events, Enabled: !req.Disabled, Format: req.Format,
		CreatedAt: time.Now().UTC(), ProjectID: caller.ProjectID,
	}}
	if err := s.check(&w.Webhook, w.Events); err != nil {
		return nil, err
	}
	if err := s.seal(w, req.Secret); err != nil {
		return nil, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.o.Store.Webhooks(ctx, w.ProjectID)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxPerProject {
		return nil, bothy.Errorf(bothy.CodeQuota, "the project has %d webhooks, which is the most there can be", len(all)).
			WithHint("Delete one that is not needed: `bothy webhook rm ID`.")
	}
	if w.LastEventID, err = s.o.Store.LastEvent(ctx); err != nil {
		return nil, err
	}
	if err := s.o.Store.PutWebhook(ctx, w); err != nil {
		return nil, err
	}
	s.restart(w)
	shown := w.Webhook
	shown.Secret = req.Secret
	return &shown, nil
}

// Webhooks implements bothy.WebhookService.
func (s *Service) Webhooks(ctx context.Context) ([]*bothy.Webhook, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	rows, err := s.o.Store.Webhooks(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	all := make([]*bothy.Webhook, len(rows))
	for i, w := range rows {
		all[i] = &w.Webhook
	}
	return all, nil
}

// Webhook implements bothy.WebhookService.
func (s *Service) Webhook(ctx context.Context, id string) (*bothy.Webhook, error) {
	w, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	return &w.Webhook, nil
}

// row returns a webhook of the caller's project, if the caller may change it.
func (s *Service) row(ctx context.Context, id string) (*store.Webhook, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	return s.o.Store.Webhook(ctx, caller.ProjectID, id)
}

// UpdateWebhook implements bothy.WebhookService. Failed deliveries are retried immediately; an
// enabled webhook continues where it stopped.
func (s *Service) UpdateWebhook(ctx context.Context, id string, u bothy.WebhookUpdate) (*bothy.Webhook, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	w, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	if u.Name != nil {
		w.Name = *u.Name
	}
	if u.URL != nil {
		w.URL = *u.URL
	}
	var events []string
	if u.Events != nil {
		events = *u.Events
		w.Events = events
	}
	if u.Enabled != nil {
		w.Enabled = *u.Enabled
	}
	if err := s.check(&w.Webhook, events); err != nil {
		return nil, err
	}
	if u.Secret != nil {
		if err := s.seal(w, *u.Secret); err != nil {
			return nil, err
		}
	}
	s.stop(id) // so that nothing else changes its state
	if w, err = s.changed(ctx, w); err != nil {
		return nil, err
	}
	s.restart(w)
	return &w.Webhook, nil
}

// changed stores a changed webhook, with its sender's last state.
func (s *Service) changed(ctx context.Context, w *store.Webhook) (*store.Webhook, error) {
	now, err := s.o.Store.Webhook(ctx, w.ProjectID, w.ID)
	if err != nil {
		return nil, err
	}
	w.WebhookState = now.WebhookState
	w.FailingSince, w.NextAttemptAt, w.LastError = nil, nil, ""
	if w.Enabled {
		w.DisabledReason = ""
	}
	if err := s.o.Store.PutWebhook(ctx, w); err != nil {
		return nil, err
	}
	return w, s.o.Store.SetWebhookState(ctx, w.ID, w.WebhookState)
}

// DeleteWebhook implements bothy.WebhookService.
func (s *Service) DeleteWebhook(ctx context.Context, id string) error {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	w, err := s.o.Store.Webhook(ctx, caller.ProjectID, id)
	if err != nil {
		return err
	}
	s.stop(id) // before that, since it may be storing that it is disabled
	if err := s.o.Store.DeleteWebhook(ctx, caller.ProjectID, id); err != nil {
		s.restart(w)
		return err
	}
	return nil
}

// Run delivers until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	s.changing.Lock()
	all, err := s.o.Store.Webhooks(ctx, "")
	if err == nil {
		s.mu.Lock()
		s.run = ctx
		s.mu.Unlock()
		for _, w := range all {
			s.restart(w)
		}
	}
	s.changing.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.mu.Lock()
	s.run = nil
	s.mu.Unlock()
	s.ended.Wait()
	return nil
}

// seal encrypts a secret for its webhook.
func (s *Service) seal(w *store.Webhook, secret string) (err error) {
	if n := len(secret); n < 8 || n > 512 {
		return bothy.Errorf(bothy.CodeInvalid, "secret: it has %d characters", n).WithHint("Give from 8 to 512, or none to have one made.")
	}
	w.SealedSecret, err = s.o.Vault.Seal([]byte(secret), SealedFor(w))
	return err
}

func (s *Service) secret(w *store.Webhook) (string, error) {
	plain, err := s.o.Vault.Open(w.SealedSecret, SealedFor(w))
	return string(plain), err
}

// SealedFor is what a webhook's secret is sealed for, so that it cannot be moved to another.
func SealedFor(w *store.Webhook) string { return "webhook " + w.ID }

// restart starts delivering for a webhook in its current state.
func (s *Service) restart(w *store.Webhook) {
	s.stop(w.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || !w.Enabled {
		return
	}
	x := newSender(s, w)
	s.senders[w.ID] = x
	s.ended.Go(func() { x.work() })
}

// stop ends the deliveries of a webhook and waits for it.
func (s *Service) stop(id string) {
	s.mu.Lock()
	x := s.senders[id]
	delete(s.senders, id)
	s.mu.Unlock()
	if x != nil {
		x.cancel()
		<-x.done
	}
}

func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// encoder returns the encoder of a format.
func (s *Service) encoder(f bothy.WebhookFormat) Encoder {
	if f == bothy.WebhookStandard {
		return standard
	}
	return s.o.Formats[f]
}

var errDisabled = errors.New("the webhook was disabled")

// wants reports whether the webhook wants events of a type.
func wants(w *bothy.Webhook, typ string) bool {
	return len(w.Events) == 0 || slices.Contains(w.Events, typ) || typ == bothy.EventWebhookTest
}
