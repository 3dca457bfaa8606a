package builds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/wholefile"
)

// Needed returns how many snapshots need each build, by name.
type Needed = func(context.Context) (map[string]int, error)

// Sweep removes unneeded builds: those that are not held, not the newest of their engine, and
// not in needed. Beyond the size limit it also removes needed ones, the longest unused first;
// their snapshots then restore only files, or, where hosts have builds in common, fetch them again.
// It returns the names of the removed builds.
//
// needed is called after the held builds were noted. A machine whose snapshot is being written
// holds its build until the snapshot can be listed, so at least one of the two is seen; and
// builds held from then on are kept.
func (s *Store) Sweep(ctx context.Context, needed Needed) ([]string, error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	s.touched = map[string]bool{}
	for name := range s.holds {
		s.touched[name] = true
	}
	s.mu.Unlock()
	all, err := List(s.dir)
	if err != nil {
		return nil, err
	}
	keep := s.newest(all)
	need, err := needed(ctx)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit("builds.listed"); err != nil {
		return nil, err
	}
	var gone []string
	var errs []error
	drop := func(b Build, why string) bool {
		ok, err := s.drop(b.Name)
		if ok {
			s.o.Log.Info("removed an engine build", "build", b.Name, "reason", why, "mb", b.Size()>>20)
			gone = append(gone, b.Name)
		}
		errs = append(errs, err)
		return ok
	}
	var left []Build
	for _, b := range all {
		if keep[b.Name] || need[b.Name] > 0 || !drop(b, "nothing needs it") {
			left = append(left, b)
		}
	}
	stays := map[string]bool{}
	for size := keptBytes(left, keep); s.o.MaxBytes > 0 && size > s.o.MaxBytes; size = keptBytes(left, keep) {
		oldest := -1
		for i, b := range left {
			if !keep[b.Name] && !stays[b.Name] && !s.isHeld(b.Name) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		b := left[oldest]
		lost := need[b.Name] > 0
		if lost && s.o.Elsewhere != nil {
			there, err := s.o.Elsewhere(ctx, b.Name)
			errs = append(errs, err)
			if !there {
				stays[b.Name] = true
				continue
			}
			lost = false
		}
		left = append(left[:oldest:oldest], left[oldest+1:]...)
		if drop(b, fmt.Sprintf("kept builds take up %d MB, and engines.keep_mb is %d", size>>20, s.o.MaxBytes>>20)) && lost {
			s.o.Log.Warn("snapshots have lost their engine build: they give their files, without processes", "build", b.Name, "snapshots", need[b.Name])
		}
	}
	errs = append(errs, s.removeFiles())
	return gone, errors.Join(errs...)
}

// newest returns the builds that are always kept: those of this server, and the newest of each
// engine that it has not opened.
func (s *Store) newest(all []Build) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, seen := map[string]bool{}, map[string]bool{}
	for engine, name := range s.own {
		keep[name], seen[engine] = true, true
	}
	for _, b := range all {
		if !seen[b.Engine] {
			keep[b.Name], seen[b.Engine] = true, true
		}
	}
	return keep
}

// keptBytes is the size of the builds other than those that are always kept. Shared files count
// once.
func keptBytes(all []Build, keep map[string]bool) (n int64) {
	seen := map[string]bool{}
	for _, b := range all {
		for _, f := range b.Files {
			seen[f.Name] = seen[f.Name] || keep[b.Name]
		}
	}
	for _, b := range all {
		for _, f := range b.Files {
			if !seen[f.Name] {
				n += f.Size
			}
			seen[f.Name] = true
		}
	}
	return n
}

func (s *Store) isHeld(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched[name] // Sweep has put in those that are held, and Hold puts in more
}

// drop removes a record, unless it is held or was held since the sweep began.
func (s *Store) drop(name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.touched[name] {
		return false, nil
	}
	if err := os.Remove(s.record(name)); err != nil {
		return false, err
	}
	if err := wholefile.Sync(filepath.Join(s.dir, recordsDir)); err != nil {
		return true, err
	}
	return true, failpoint.Hit("builds.dropped")
}

// removeFiles removes files that no record names, that are not in use, and that are not from
// this server. Unfinished files have other names. Nothing is written while mu is held: Put first
// pins what it will name.
func (s *Store) removeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := List(s.dir)
	if err != nil {
		return err
	}
	named := map[string]bool{recordsDir: true}
	for _, h := range s.holds {
		all = append(all, h.Build)
	}
	for _, b := range all {
		named[b.Tree] = true
		for _, f := range b.Files {
			named[f.Name] = true
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		switch name := e.Name(); {
		case named[name] || s.pinned[name] || strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, extractPrefix):
		case strings.HasPrefix(name, goingPrefix):
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, name)))
		default:
			errs = append(errs, s.removeAtomically(name))
			if err := failpoint.Hit("builds.removed"); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// TotalBytes is the size of all builds. Shared files count once.
func TotalBytes(all []Build) int64 { return keptBytes(all, nil) }
