package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/e2b"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/webhook"
)

// outward is the transport for requests to addresses that projects choose.
func (s *Server) outward() *http.Transport {
	t := gateway.Transport(s.config.Webhooks.Allow, s.config.Network.Forbid)
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// openWebhooks creates the webhook service. It sends nothing until runWebhooks.
func (s *Server) openWebhooks() {
	s.webhooks = webhook.New(webhook.Options{
		Store: s.store, Events: s.lifecycle, Vault: s.vault, Transport: s.outward(), Log: s.log,
		Formats: map[bothy.WebhookFormat]webhook.Encoder{bothy.WebhookE2B: e2b.WebhookEncoder(s.lifecycle)},
	})
}

// runWebhooks sends events until the server closes.
func (s *Server) runWebhooks() {
	s.undo.Add(s.inBackground(s.webhooks.Run, "cannot read the webhooks; none are sent"))
}

// inBackground runs a function until stop is called. stop waits for it to return.
func (s *Server) inBackground(run func(context.Context) error, failed string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			s.log.Error(failed, "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
