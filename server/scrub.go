package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

const (
	// scrubFirst is how long after a start or a failure that begins.
	scrubFirst = time.Hour
	// scrubRate is how many bytes a second are read for it.
	scrubRate = 16 << 20
	// spoiledFor is how long a tree found damaged on this host is not read again.
	spoiledFor = time.Hour
)

// scrubber runs a task: regularly on the host that is on duty, and on any host that is asked to.
type scrubber struct {
	every  time.Duration // 0 means only when asked
	onDuty func() bool
	asked  <-chan struct{}
	// scrub ends early once mayGoOn returns false.
	scrub  func(ctx context.Context, mayGoOn func() bool) error
	failed func(error)
}

// run runs the task until ctx ends. Times are jittered, so that servers that were started at the
// same moment do not read from the storage at the same moment.
func (c scrubber) run(ctx context.Context) {
	for wait := jitter(scrubFirst); ; {
		var due <-chan time.Time
		if c.every > 0 {
			due = time.After(wait)
		}
		mayGoOn := c.onDuty
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-c.asked:
			mayGoOn = func() bool { return true }
		}
		begun := time.Now()
		wait = time.Minute
		if !mayGoOn() {
			continue
		}
		if err := c.scrub(ctx, mayGoOn); err != nil {
			if ctx.Err() == nil {
				c.failed(err)
			}
			wait = jitter(scrubFirst)
			continue
		}
		wait = max(jitter(c.every)-time.Since(begun), jitter(scrubFirst))
	}
}

// jitter returns a time between nine and eleven tenths of d.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(max(d/5, 1))
}

// VerifyObjects has this host verify what is in the object storage now, also if it is not on duty. If
// it is doing so, it does so once more after that.
func (s *Server) VerifyObjects() {
	if s.bucket == nil {
		s.log.Warn("there is no object storage to verify")
		return
	}
	select {
	case s.verify <- struct{}{}:
	default:
	}
}

// runScrub verifies what is in the object storage, regularly and when asked to, until ctx ends.
func (s *Server) runScrub(ctx context.Context) {
	if s.bucket == nil {
		return
	}
	scrubber{
		every:  time.Duration(s.bucket.Location.VerifyDays) * 24 * time.Hour,
		onDuty: s.scrubs, asked: s.verify, scrub: s.scrub,
		failed: func(err error) {
			s.log.Warn("cannot verify everything in the object storage; trying again", "error", err)
		},
	}.run(ctx)
}

// scrubs reports whether this host regularly verifies the object storage.
func (s *Server) scrubs() bool { return s.hosts == nil || s.onDuty.Load() }

// errOffDuty ends a verification that another host continues.
var errOffDuty = errors.New("another host is on duty now")

// scrub verifies what is in the object storage, and repairs it. It ends early once mayGoOn returns
// false.
func (s *Server) scrub(ctx context.Context, mayGoOn func() bool) error {
	trees, err := s.storedTrees(ctx)
	if err != nil {
		return err
	}
	before := map[string]s3.Counts{}
	for _, kind := range s.storedKinds() {
		before[kind] = s.bucket.Counts(kind)
	}
	begun := time.Now()
	s.log.Info("verifying what is in the object storage", "trees", len(trees))
	err = s.bucket.Scrub(ctx, s3.Scrub{Trees: trees, Named: s.stillStored, Pace: func(ctx context.Context, bytes int64) error {
		if !mayGoOn() {
			return errOffDuty
		}
		return scrubPace(ctx, bytes)
	}})
	if errors.Is(err, errOffDuty) {
		return nil
	}
	took := time.Since(begun).Round(time.Second)
	for _, kind := range s.storedKinds() {
		n, was := s.bucket.Counts(kind), before[kind]
		s.log.Info("verified what is in the object storage", "kind", kind, "pieces", n.Checked-was.Checked, "damaged", n.Damaged-was.Damaged, "repaired", n.Repaired-was.Repaired, "took", took.String())
	}
	return err
}

// scrubPace waits as long as a piece should take to read.
func scrubPace(ctx context.Context, bytes int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(bytes) * time.Second / scrubRate):
		return nil
	}
}

// storedKinds are the kinds of trees that this server has in the object storage.
func (s *Server) storedKinds() []string {
	if s.shared == nil {
		return []string{snapshotKind}
	}
	return append([]string{snapshotKind}, treeKinds...)
}

// storedTrees lists what the records place in the object storage, in random order, so that a
// verification that is interrupted again and again reaches everything.
func (s *Server) storedTrees(ctx context.Context) (trees []s3.Tree, err error) {
	ids, err := s.storedSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		trees = append(trees, s3.Tree{Kind: snapshotKind, Name: id})
	}
	for _, kind := range s.storedKinds()[1:] {
		all, err := s.shared.Trees(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			if isStored(&t) {
				trees = append(trees, s3.Tree{Kind: kind, Name: t.Name})
			}
		}
	}
	rand.Shuffle(len(trees), func(i, k int) { trees[i], trees[k] = trees[k], trees[i] })
	return trees, nil
}

// isStored reports whether a tree is in the object storage, and stays there.
func isStored(t *store.Tree) bool {
	return t.StoredAt != nil && !t.Deleting() && t.UnneededAt == nil
}

// stillStored reports whether the records still place a tree in the object storage.
func (s *Server) stillStored(ctx context.Context, t s3.Tree) (bool, error) {
	if t.Kind == snapshotKind {
		return s.namesSnapshot(ctx, t.Name)
	}
	r, err := s.treeOf(ctx, t.Kind, t.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && isStored(r), err
}

// treeOf finds the record of a tree by its name in the object storage. A missing one is
// fs.ErrNotExist.
func (s *Server) treeOf(ctx context.Context, kind, object string) (*store.Tree, error) {
	t, err := s.shared.Tree(ctx, kind, object)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		return nil, fs.ErrNotExist
	}
	return t, err
}

// copies offers copies of a piece that exist outside the object storage: first this host's.
func (s *Server) copies(ctx context.Context, p s3.Piece, good func([]byte) bool) error {
	at := cluster.Piece{Kind: p.Kind, Name: p.Name, File: p.File, At: p.At, Size: p.Size}
	if data, err := s.readPiece(ctx, at); err == nil && good(data) {
		return nil
	}
	if s.pieces.Router == nil {
		return fs.ErrNotExist
	}
	return s.pieces.Ask(ctx, at, good)
}

// readPiece reads a piece of a tree on this host's disk, for this host or another.
func (s *Server) readPiece(ctx context.Context, at cluster.Piece) ([]byte, error) {
	p := s3.Piece{Kind: at.Kind, Name: at.Name, File: at.File, At: at.At, Size: at.Size}
	blobs, ok := s.blobs.(*s3.Store)
	switch {
	case p.Kind == snapshotKind && ok:
		return blobs.Piece(ctx, p)
	case s.shared == nil || !slices.Contains(treeKinds, p.Kind):
		return nil, fs.ErrNotExist
	case p.File == "":
		return s.indexHere(ctx, p.Kind, p.Name)
	}
	f, err := s.openShared(p.Kind, p.Name, p.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return s3.ReadPiece(f, p)
}

// indexHere makes the index of a tree from its files on this host.
func (s *Server) indexHere(ctx context.Context, kind, object string) (text []byte, err error) {
	t, err := s.treeOf(ctx, kind, object)
	if err != nil {
		return nil, err
	}
	err = s.withTree(ctx, t, func(dir string) error {
		text, err = s3.IndexOf(ctx, dir)
		return err
	})
	return text, err
}

// withTree calls do with a folder that has the files of a tree on this host, once they are verified.
// If this host lacks any of them, it is fs.ErrNotExist.
func (s *Server) withTree(ctx context.Context, t *store.Tree, do func(dir string) error) error {
	parent := filepath.Join(s.config.Home, "objects") // hard links need the same disk
	if t.Kind == store.TreeTemplates {
		parent = filepath.Join(s.config.Templates, ".build")
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, uploadPrefix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.linkIntact(ctx, t, dir); err != nil {
		return err
	}
	return do(dir)
}

// errSpoiled means that a tree's files are damaged on this host.
var errSpoiled = errors.New("its files on this host are damaged")

// linkIntact is linkTree and checkTree. A damaged tree is not read again for a while.
func (s *Server) linkIntact(ctx context.Context, t *store.Tree, dir string) error {
	key := t.Kind + "/" + t.Name
	if at, ok := s.spoiled.Load(key); ok && time.Since(at.(time.Time)) < spoiledFor {
		return fmt.Errorf("%s: %w", key, errSpoiled)
	}
	err := s.linkTree(t, dir)
	if err == nil {
		err = checkTree(ctx, t, dir)
	}
	if code := bothy.ErrorCode(err); code != bothy.CodeSnapshotDamaged && code != bothy.CodeTemplateInvalid {
		s.spoiled.Delete(key)
		return err
	}
	s.spoiled.Store(key, time.Now())
	s.log.Error("files on this host are damaged, and are not uploaded to the object storage", "kind", t.Kind, "name", calledBy(t), "error", err, "do", remedies[t.Kind])
	return fmt.Errorf("%s: %w: %w", key, errSpoiled, err)
}

// checkTree compares the files of a tree in a folder with the checksums in its record.
func checkTree(ctx context.Context, t *store.Tree, dir string) error {
	switch t.Kind {
	case store.TreeTemplates:
		return checkFile(ctx, dir, imageFile, t.Name)
	case store.TreeEngines:
		b := &builds.Build{}
		if err := json.Unmarshal(t.Record, b); err != nil {
			return err
		}
		for _, f := range b.Files {
			if err := checkFile(ctx, dir, f.Name, f.SHA256); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func checkFile(ctx context.Context, dir, name, want string) error {
	got, err := builds.Digest(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if got != want {
		return bothy.Errorf(bothy.CodeSnapshotDamaged, "the checksum of %s is wrong", name)
	}
	return ctx.Err()
}

// verifySnapshot verifies the files of a snapshot on this host.
func verifySnapshot(ctx context.Context, _, dir string) error {
	m, err := snapshot.Read(dir)
	if err != nil {
		return err
	}
	return snapshot.Verify(ctx, dir, m, false)
}

// remedies say what to do if no copy of a tree of a kind is left.
var remedies = map[string]string{
	snapshotKind:        "start the hosts that are unavailable, since one may have a copy, or restore these objects from a backup of the bucket; otherwise delete the snapshot, and use another of its sandbox",
	store.TreeTemplates: "start the hosts that are unavailable, since one may have a copy; otherwise build the template again with bothy template build NAME --force, or capture or import it again",
	store.TreeEngines:   "start the hosts that are unavailable, since one may have a copy; otherwise run the version of Bothy that has this build once on any host, which then has a copy",
}

// mostLost is how many lost pieces a log line names.
const mostLost = 10

// damaged reports damage that was found in the object storage.
func (s *Server) damaged(ctx context.Context, d s3.Damage) {
	name := d.Name
	if d.Kind == snapshotKind {
		s.lifecycle.SnapshotDamaged(ctx, d.Name, d.Found, d.Repaired)
	} else if t, err := s.treeOf(ctx, d.Kind, d.Name); err == nil {
		name = calledBy(t)
	}
	log := s.log.With("kind", d.Kind, "name", name, "damaged", d.Found, "repaired", d.Repaired)
	if d.Repaired == d.Found {
		log.Warn("repaired damaged pieces in the object storage from copies on the hosts")
	}
	if d.Err != nil {
		log.Error("cannot repair damaged pieces in the object storage; trying again when they are next read", "error", d.Err)
	}
	if len(d.Lost) == 0 {
		return
	}
	var lost []string
	for _, p := range d.Lost[:min(len(d.Lost), mostLost)] {
		lost = append(lost, p.String())
	}
	if more := len(d.Lost) - len(lost); more > 0 {
		lost = append(lost, fmt.Sprintf("%d more", more))
	}
	log.Error("pieces in the object storage are damaged, and no host has a copy", "object", d.Kind+"/"+d.Name, "pieces", strings.Join(lost, ", "), "do", remedies[d.Kind])
}

// calledBy returns what users call a tree: for an image also the template, as far as it is known.
func calledBy(t *store.Tree) string {
	var m store.Template
	if t.Kind == store.TreeTemplates && json.Unmarshal(t.Record, &m) == nil && m.Name != "" {
		return m.Ref() + " (" + t.Name[:min(12, len(t.Name))] + ")"
	}
	return t.Name
}
