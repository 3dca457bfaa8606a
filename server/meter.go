package server

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/metering"
	"github.com/bothy-dev/bothy/store"
)

// openMeter creates the usage meter. It counts nothing until runMeter.
func (s *Server) openMeter(ctx context.Context) (err error) {
	s.meter, err = metering.New(ctx, metering.Options{
		Storage: s.membership.countsStorage(),
		Store:   s.store, Sandbox: s.store.Sandbox, Snapshots: s.store.AllSnapshots,
		Templates: func(context.Context) ([]*store.Template, error) { return s.templates.All() },
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

// runMeter meters until the server closes. It stops before sandboxes are detached.
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
			s.log.Error("cannot write the last usage", "error", err)
		}
	})
}

// problems lists what is wrong although the server still answers.
func (s *Server) problems() (found []string) {
	// The causes name files of the host, so they go to the log only.
	if s.meter.Health() != nil {
		found = append(found, "usage cannot be written and is kept in memory; see the server's log for the cause")
	}
	if s.audit.Health() != nil {
		found = append(found, "the audit cannot be stored and is kept in memory; see the server's log for the cause")
	}
	if s.damage.Load() {
		found = append(found, "the database is damaged: stop the server and restore a backup; see the server's log")
	}
	if s.closedSecrets != "" {
		found = append(found, s.closedSecrets)
	}
	if s.doubtful() {
		found = append(found, "the database has lost records: it was damaged, or an older copy was restored; see the server's log")
	}
	return append(found, s.lifecycle.Problems()...)
}
