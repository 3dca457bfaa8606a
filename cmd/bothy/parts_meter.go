package main

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/metering"
)

// openMeter makes what counts what is used. It begins to count with runMeter.
func (p *parts) openMeter(ctx context.Context) (err error) {
	everything := &bothy.Caller{ProjectID: bothy.DefaultProject, TokenID: "server", Scopes: bothy.AllScopes}
	p.meter, err = metering.New(ctx, metering.Options{
		Store: p.store, Sandbox: p.store.Sandbox, Snapshots: p.store.AllSnapshots,
		Templates: func(ctx context.Context) ([]*bothy.Template, error) {
			return p.templates.Templates(bothy.WithCaller(ctx, everything))
		},
		Project: func(ctx context.Context, id string) error {
			_, err := p.store.Project(ctx, id)
			return err
		},
		Rates: bothy.Rates(p.config.Rates), Every: time.Duration(p.config.Metering.FlushSeconds) * time.Second,
		WarnAt: p.config.Metering.WarnAt, Log: p.log,
	})
	if err == nil {
		p.projects.UseBudgets(p.meter)
	}
	return err
}

// runMeter counts until the server closes, which it does before sandboxes are
// let go of.
func (p *parts) runMeter() {
	p.meter.Serve(p.lifecycle)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.meter.Run(ctx)
	}()
	p.undo.Add(func() {
		stop()
		<-done
		if err := p.meter.Close(context.Background()); err != nil {
			p.log.Error("the last usage could not be written", "error", err)
		}
	})
}

// problems says what is wrong although the server answers.
func (p *parts) problems() (found []string) {
	// The causes are for the log: they name files of the host.
	if p.meter.Health() != nil {
		found = append(found, "usage cannot be written and is kept in memory; the server's log says why")
	}
	if p.audit.Health() != nil {
		found = append(found, "the audit cannot be stored and is kept in memory; the server's log says why")
	}
	if p.missing > 0 {
		found = append(found, "the database lacks records that it had: it was damaged, or is an older one; the server's log says more")
	}
	return append(found, p.lifecycle.Problems()...)
}
