package s3

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"
)

// recordRemoval records when a tree was removed or was first found without a record.
func (s *Store) recordRemoval(name string) error {
	return s.remember(gone, name, []byte(s.o.now().UTC().Format(time.RFC3339)))
}

func (s *Store) doubtful() bool { return s.o.Doubtful != nil && s.o.Doubtful() }

// Collect deletes from the bucket what was removed longer ago than the grace time. It asks the
// records first: a tree that they name is kept.
func (s *Store) Collect(ctx context.Context) error {
	if s.doubtful() {
		return nil
	}
	names, err := s.stateNames(gone)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := s.collectOne(ctx, name); err != nil {
			errs = append(errs, err)
			if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Store) collectOne(ctx context.Context, name string) error {
	named, err := s.o.Named(ctx, name)
	if err != nil {
		return err
	}
	if named {
		// Either its removal was interrupted, or the records were restored from a backup.
		if err := removeFile(s.state(gone, name)); err != nil {
			return err
		}
		if s.Local(name) {
			s.Keep(name)
		}
		return nil
	}
	text, err := os.ReadFile(s.state(gone, name))
	if err != nil {
		return err
	}
	since, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil {
		return s.recordRemoval(name) // unreadable: the grace time starts now
	}
	if s.o.now().Sub(since) < s.o.Grace {
		return nil
	}
	if err := s.bucket.Usable(); err != nil {
		return err
	}
	if err := s.bucket.removeTree(ctx, s.o.Kind, name); err != nil {
		return err
	}
	if err := s.local.Remove(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.sizes, name)
	s.mu.Unlock()
	s.log.Info("deleted from the object storage", "kind", s.o.Kind, "name", name)
	return removeFile(s.state(gone, name))
}

// Sweep looks in the bucket for trees that no record names, such as those of a server that no
// longer exists. Each is deleted once no record has named it for the grace time.
func (s *Store) Sweep(ctx context.Context) error {
	if s.doubtful() {
		return nil
	}
	if err := s.bucket.Usable(); err != nil {
		return err
	}
	names, err := s.bucket.names(ctx, s.bucket.key(s.o.Kind)+"/", 0)
	if err != nil {
		return err
	}
	known, err := s.stateNames(indexes)
	if err != nil {
		return err
	}
	// This host may have the index of a tree that another host has removed.
	names = append(names, known...)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		// A tree that is only on this host may not have its record yet. One in the bucket had a
		// record, which another host may have deleted.
		if s.has(gone, name) || s.Local(name) && !s.has(indexes, name) {
			continue
		}
		named, err := s.o.Named(ctx, name)
		if err != nil {
			return err
		}
		if !named {
			if err := errors.Join(s.recordRemoval(name), removeFile(s.state(indexes, name))); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	collectEvery = 10 * time.Minute
	sweepEvery   = 24 * time.Hour
)

// RunCollector collects regularly until ctx ends.
func (s *Store) RunCollector(ctx context.Context) {
	swept := time.Now().Add(-sweepEvery + time.Hour) // not in the first hour
	t := time.NewTicker(collectEvery)
	defer t.Stop()
	for {
		err := s.Collect(ctx)
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			err = errors.Join(err, s.Sweep(ctx))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot clean up the object storage; trying again", "kind", s.o.Kind, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
