// Package audit keeps the record of who did what. The APIs (api, mcp) pass it records, which it
// links into a chain of hashes and stores in batches, without delaying requests. server gives it
// the store; only the APIs use it.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// flushEvery is how long a record waits for others to be stored with it. A server that is
	// killed loses no more than that.
	flushEvery = 500 * time.Millisecond
	// batch is how many records are stored at once. The writer starts early when so many are
	// waiting.
	batch = 256
	// maxQueue is how many records can be waiting. Beyond that, callers wait.
	maxQueue = 4096
	// retryEvery is how long the writer waits after a failure.
	retryEvery = time.Second
	pruneEvery = time.Hour
	// pruneAtOnce keeps the database free for others in between.
	pruneAtOnce = 5000
)

// Store is what this package needs of store.Store.
type Store interface {
	AuditEnds(ctx context.Context) (store.AuditEnds, error)
	AppendAudit(ctx context.Context, lines []store.AuditLine) error
	AuditLines(ctx context.Context, f bothy.AuditFilter) ([]store.AuditLine, error)
	DeleteAuditBefore(ctx context.Context, t time.Time, most int) (int, error)
}

// Options change a Log. The zero value means the defaults.
type Options struct {
	// Keep is how long records are kept; zero means for ever.
	Keep time.Duration
	// NoCommands omits the commands that were run.
	NoCommands bool
	Now        func() time.Time
	Log        *slog.Logger
}

// Log is the audit log. It is a bothy.AuditService and a bothy.AuditRecorder. Its life is Open,
// Close. This process must be the only one that writes to its store, unless the store reports
// what others add: see store.ErrAuditMoved.
type Log struct {
	store Store
	o     Options

	mu      sync.Mutex
	queue   []bothy.AuditRecord
	room    sync.Cond // the queue has become shorter, or failing has changed
	failing error     // why the last attempt to store failed
	closed  bool
	refused refusals
	used    uses

	wake chan struct{} // takes one
	quit chan struct{}
	done chan struct{}

	// Only the writer uses these.
	lastID   int64
	lastHash string

	// storing is held while records move from the queue into the store, so that Flush can wait
	// for them.
	storing sync.Mutex
}

var (
	_ bothy.AuditService  = (*Log)(nil)
	_ bothy.AuditRecorder = (*Log)(nil)
)

// Open continues the chain in a store.
func Open(ctx context.Context, s Store, o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	ends, err := s.AuditEnds(ctx)
	if err != nil {
		return nil, err
	}
	l := &Log{
		store: s, o: o, lastID: ends.LastID, lastHash: ends.LastHash,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	l.room.L = &l.mu
	go l.write()
	return l, nil
}

// Close stores pending records, and ends the writer. Later records are lost, so the APIs must be
// closed first.
func (l *Log) Close() error {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if already {
		return nil
	}
	close(l.quit)
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.Broadcast()
	l.o.Log.Info("audit", "last", l.lastID, "head", l.lastHash, "unwritten", len(l.queue))
	if len(l.queue) > 0 {
		return fmt.Errorf("%d records of the audit could not be stored: %w", len(l.queue), l.failing)
	}
	return nil
}

// Admit implements bothy.AuditRecorder. While records cannot be stored and the queue is full, it
// refuses everything.
func (l *Log) Admit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing == nil || len(l.queue) < maxQueue {
		return nil
	}
	e := bothy.Errorf(bothy.CodeCapacity, "the server cannot write its audit log, so it refuses whatever has to be recorded").
		WithHint("Its operator must see to the disk under the state; then try again.").Because(l.failing)
	e.RetryAfter = 10 * time.Second
	return e
}

// Record implements bothy.AuditRecorder. It waits while the queue is full and
// being stored.
func (l *Log) Record(r bothy.AuditRecord) {
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	if l.o.NoCommands {
		r.Command = ""
	}
	r.Command, r.Object = strings.Clone(r.Command[:min(len(r.Command), roughly)]), strings.Clone(r.Object[:min(len(r.Object), roughly)])
	l.mu.Lock()
	defer l.mu.Unlock()
	if refusal(r.Status) && !l.refused.admit(&r, l.o.Now()) {
		return
	}
	for len(l.queue) >= maxQueue && l.failing == nil && !l.closed {
		l.room.Wait()
	}
	l.add(r)
}

// add is called with l.mu held.
func (l *Log) add(r bothy.AuditRecord) {
	l.queue = append(l.queue, r)
	if len(l.queue) >= batch {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// write stores batches until Close.
func (l *Log) write() {
	defer close(l.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var pruned time.Time
	for {
		quit := false
		select {
		case <-l.wake:
		case <-tick.C:
		case <-l.quit:
			quit = true
		}
		l.summarise(quit)
		for l.storeBatch() {
		}
		if quit {
			return
		}
		if l.o.Keep > 0 && time.Since(pruned) >= pruneEvery {
			l.prune()
			pruned = time.Now()
		}
		if l.Health() != nil {
			select {
			case <-time.After(retryEvery):
			case <-l.quit:
			}
		}
	}
}

// Health returns why records cannot be stored now, or nil.
func (l *Log) Health() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing
}

// summarise queues records for events that were only counted.
func (l *Log) summarise(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range append(l.refused.due(l.o.Now(), all), l.used.due(l.o.Now(), all)...) {
		l.add(r)
	}
}

// storeBatch stores a part of the queue, and reports whether there may be more to store now.
func (l *Log) storeBatch() bool {
	l.storing.Lock()
	defer l.storing.Unlock()
	l.mu.Lock()
	records := l.queue[:min(len(l.queue), batch)]
	l.mu.Unlock()
	if len(records) == 0 {
		return false
	}
	id, hash := l.lastID, l.lastHash
	lines := make([]store.AuditLine, len(records))
	for i, r := range records {
		id++
		r.ID, r.Hash = id, ""
		r.Command, r.Object = shorten(redact(r.Command), maxCommand), shorten(redact(r.Object), maxObject)
		text, err := json.Marshal(r)
		if err != nil {
			panic("audit: a record that cannot be written: " + err.Error())
		}
		hash = link(hash, string(text))
		lines[i] = store.AuditLine{
			ID: id, Time: r.Time, ProjectID: r.ProjectID, TokenID: r.TokenID, SandboxID: r.SandboxID,
			Action: r.Action, Status: r.Status, Record: string(text), Hash: hash,
		}
	}
	err := l.store.AppendAudit(context.Background(), lines)
	if errors.Is(err, store.ErrAuditMoved) {
		// Another server has added to the chain: append the same records to its new end.
		var ends store.AuditEnds
		if ends, err = l.store.AuditEnds(context.Background()); err == nil {
			l.lastID, l.lastHash = ends.LastID, ends.LastHash
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if (err == nil) != (l.failing == nil) {
		if err != nil {
			l.o.Log.Error("the audit cannot be stored; trying again", "error", err, "waiting", len(l.queue))
		} else {
			l.o.Log.Info("the audit can be stored again")
		}
	}
	l.failing = err
	l.room.Broadcast()
	if err != nil {
		return false
	}
	l.lastID, l.lastHash = id, hash
	l.queue = append(l.queue[:0:0], l.queue[len(records):]...)
	return len(l.queue) > 0
}

// flush stores pending records, so that readers see them.
func (l *Log) flush() {
	for l.storeBatch() {
	}
}

func (l *Log) prune() {
	before := l.o.Now().Add(-l.o.Keep)
	for {
		l.storing.Lock()
		n, err := l.store.DeleteAuditBefore(context.Background(), before, pruneAtOnce)
		l.storing.Unlock()
		if err != nil {
			l.o.Log.Error("old records of the audit were not deleted", "error", err)
		}
		if n < pruneAtOnce {
			return
		}
	}
}

// link returns the hash of a record that follows another.
func link(before, record string) string {
	sum := sha256.Sum256([]byte(before + "\n" + record))
	return hex.EncodeToString(sum[:])
}
