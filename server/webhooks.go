package server

import (
	"context"

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
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.webhooks.Run(ctx); err != nil {
			s.log.Error("webhooks cannot be read, and send nothing", "error", err)
		}
	}()
	s.undo.Add(func() {
		stop()
		<-done
	})
}
