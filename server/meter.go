package server

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/metering"
)

// openMeter makes what counts what is used. It begins to count with runMeter.
func (s *Server) openMeter(ctx context.Context) (err error) {
	s.meter, err = metering.New(ctx, metering.Options{
		Storage: s.countsStorage(),
		Store:   s.store, Sandbox: s.store.Sandbox, Snapshots: s.store.AllSnapshots,
		Templates: func(context.Context) ([]*bothy.Template, error) { return s.templates.All() },
		Project: func(ctx context.Context, id string) error {
			_, err := s.store.Project(ctx, id)
			return err
		},
		Rates: bothy.Rates(s.config.Rates), Every: time.Duration(s.config.Metering.FlushSeconds) * time.Second,
		WarnAt: s.config.Metering.WarnAt, Log: s.log,
	})
	if err == nil {
		s.projects.UseBudgets(s.meter)
	}
	return err
}

// runMeter counts until the server closes, which it does before sandboxes are
// let go of.
func (s *Server) runMeter() {
	s.meter.Serve(s.lifecycle)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.meter.Run(ctx)
	}()
	s.undo.Add(func() {
		stop()
		<-done
		if err := s.meter.Close(context.Background()); err != nil {
			s.log.Error("the last usage could not be written", "error", err)
		}
	})
}

// problems says what is wrong although the server answers.
func (s *Server) problems() (found []string) {
	// The causes are for the log: they name files of the host.
	if s.meter.Health() != nil {
		found = append(found, "usage cannot be written and is kept in memory; the server's log says why")
	}
	if s.audit.Health() != nil {
		found = append(found, "the audit cannot be stored and is kept in memory; the server's log says why")
	}
	if s.missing > 0 {
		found = append(found, "the database lacks records that it had: it was damaged, or is an older one; the server's log says more")
	}
	return append(found, s.lifecycle.Problems()...)
}
