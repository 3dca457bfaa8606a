package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bothy-dev/bothy/internal/failpoint"
)

const (
	// fetchedName marks an image that was fetched. Its time is when the image was used last.
	fetchedName = "fetched"
	// usedFresh is how long a use is not noted again, and unusedFor how long an image stays that
	// nothing is seen to use: what looks it up may be about to start from it.
	usedFresh = time.Minute
	unusedFor = 10 * time.Minute
)

// touch notes that an image is used. After that it is not evicted for a while.
func (s *common) touch(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if now.Sub(s.used[dir]) < usedFresh {
		return
	}
	s.used[dir] = now
	_ = os.Chtimes(filepath.Join(dir, fetchedName), now, now) // there is none where it was made here
}

// fetchedImage is an image that was fetched.
type fetchedImage struct {
	at        *Library
	name, hex string
	bytes     int64
	used      time.Time
}

func (i *fetchedImage) dir() string { return filepath.Join(i.at.home(i.name), i.hex) }

// Evict removes fetched images until those that are left take up at most so many bytes, the one
// first that was used least lately. One that this host uses stays, and so does one that is nowhere
// else. What is removed is fetched again when it is needed.
func (l *Library) Evict(ctx context.Context, most int64) error {
	return l.evict(ctx, func(left int64) bool { return left <= most })
}

// evict is Evict until enough is satisfied with what is left.
func (l *Library) evict(ctx context.Context, enough func(left int64) bool) error {
	s := l.common
	if s == nil || s.Elsewhere == nil {
		return nil
	}
	s.evicting.Lock()
	defer s.evicting.Unlock()
	list, left, err := l.fetchedImages()
	if err != nil || enough(left) {
		return err
	}
	inUse, err := l.usedHere(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range list {
		if enough(left) {
			break
		}
		if inUse[digestPrefix+i.hex] || s.Now().Sub(i.used) < unusedFor {
			continue
		}
		there, err := s.Elsewhere(ctx, digestPrefix+i.hex)
		gone := false
		if err == nil && there {
			gone, err = i.at.evictImage(i)
		}
		if gone {
			left -= i.bytes
			s.Log.Info("the image of a template, which was fetched and is not used here, was removed", "template", i.name, "digest", digestPrefix+i.hex, "bytes", i.bytes)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fetchedImages lists the images that were fetched, those first that were used least lately, and
// adds up what they take up.
func (l *Library) fetchedImages() (list []*fetchedImage, bytes int64, err error) {
	all, err := l.everything()
	if err != nil {
		return nil, 0, err
	}
	for _, at := range all {
		names, err := at.folders()
		if err != nil {
			return nil, 0, err
		}
		for _, name := range names {
			digests, err := at.digests(name)
			if err != nil {
				return nil, 0, err
			}
			for _, hex := range digests {
				i := &fetchedImage{at: at, name: name, hex: hex}
				mark, err := os.Stat(filepath.Join(i.dir(), fetchedName))
				if err != nil {
					continue
				}
				image, err := os.Stat(filepath.Join(i.dir(), imageName))
				if err != nil {
					continue
				}
				i.bytes, i.used = image.Size(), mark.ModTime()
				list, bytes = append(list, i), bytes+i.bytes
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *fetchedImage) int { return a.used.Compare(b.used) })
	return list, bytes, nil
}

// usedHere are the digests of the images that this host uses, and of those that the memory of a
// template which it uses runs on.
func (l *Library) usedHere(ctx context.Context) (map[string]bool, error) {
	used, err := l.common.UsedHere(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.All()
	for _, t := range all {
		if t.Memory != nil && used[t.Digest] {
			used[t.Memory.BaseDigest] = true
		}
	}
	return used, err
}

// evictImage removes an image unless it is used by now. It goes in one step, with the names that
// lead to it in the folder.
func (l *Library) evictImage(i *fetchedImage) (gone bool, err error) {
	unlock, free, err := l.tryLock(i.name)
	if err != nil || !free {
		return false, err
	}
	defer unlock()
	s := l.common
	to := filepath.Join(l.dir, ".build", ".fetch-evicted-"+i.hex)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.RemoveAll(to)); err != nil {
		return false, err
	}
	s.mu.Lock() // as touch does
	mark, err := os.Stat(filepath.Join(i.dir(), fetchedName))
	if err == nil && s.Now().Sub(mark.ModTime()) < unusedFor {
		s.mu.Unlock()
		return false, nil
	}
	if err == nil {
		err = os.Rename(i.dir(), to)
	}
	s.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("remove the image of template %s: %w", i.name, err)
	}
	if err := failpoint.Hit("template.evicted"); err != nil {
		return true, err
	}
	errs := []error{os.RemoveAll(to)}
	for _, link := range l.links(i.name) {
		path := filepath.Join(l.home(i.name), link)
		if target, err := os.Readlink(path); err == nil && target == i.hex {
			errs = append(errs, os.Remove(path))
		}
	}
	return true, errors.Join(errs...)
}

// markFetched has an image that was fetched be one that may be evicted.
func (l *Library) markFetched(name, hex string) error {
	dir := filepath.Join(l.home(name), hex)
	f, err := os.OpenFile(filepath.Join(dir, fetchedName), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("mark the image of template %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	l.common.mu.Lock()
	delete(l.common.used, dir)
	l.common.mu.Unlock()
	l.common.touch(dir)
	return nil
}
