package server

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/e2b"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/webhook"
)

// openWebhooks makes what sends events to URLs. It sends none before runWebhooks.
func (s *Server) openWebhooks() {
	s.webhooks = webhook.New(webhook.Options{
		Store: s.store, Events: s.lifecycle, Vault: s.vault, Transport: gateway.Transport(s.config.Webhooks.Allow, nil), Log: s.log,
		Formats: map[bothy.WebhookFormat]webhook.Encoder{bothy.WebhookE2B: e2b.WebhookEncoder(s.lifecycle)},
	})
}

// runWebhooks sends events until the server closes.
func (s *Server) runWebhooks() {
	s.undo.Add(s.inBackground(s.webhooks.Run, "webhooks cannot be read, and send nothing"))
}

// inBackground runs something until stop is called, which waits for its end.
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
