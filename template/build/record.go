package build

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
)

// A record is one build, on disk and while it runs. Of one that has ended, only what lists of builds
// show is in memory, and the request is deleted:
//
//	<dir>/records/<id>/build.json   its state, and who asked for what
//	<dir>/records/<id>/log.jsonl    its events, one on each line
type record struct {
	b      *Builder
	dir    string
	caller *bothy.Caller
	req    bothy.BuildRequest
	same   string // equal for equal requests
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the build has ended

	mu    sync.Mutex
	build bothy.Build
	// deaths counts the starts of the build that have neither ended nor were stopped: the server
	// died meanwhile, unless it is running now.
	deaths  int
	running bool

	events int64
	logged int64 // events, once there will be no more
	bytes  int64 // of the log
	full   bool  // the log has all that it may have
	log    *os.File
	guard  *disk.Guard
	news   chan struct{} // closed at the next event
}

// stored is build.json. The secrets are sealed, and deleted once the build has ended.
type stored struct {
	Build   bothy.Build        `json:"build"`
	Project string             `json:"project"`
	Caller  bothy.Caller       `json:"caller"`
	Request bothy.BuildRequest `json:"request"`
	Same    string             `json:"same"`
	Deaths  int                `json:"deaths,omitempty"`
	// Events counts the lines of the log of a build that has ended.
	Events int64  `json:"events,omitempty"`
	Sealed []byte `json:"sealed,omitempty"`
}

func newRecord(b *Builder, caller *bothy.Caller, req bothy.BuildRequest, same string) *record {
	id := "bld_" + strings.ToLower(rand.Text()[:20])
	return &record{
		b: b, dir: filepath.Join(b.records(), id), caller: caller, req: req, same: same, done: make(chan struct{}), news: make(chan struct{}),
		build: bothy.Build{ID: id, Name: req.Name, State: bothy.BuildQueued, CreatedAt: time.Now().UTC(), ProjectID: caller.ProjectID},
	}
}

func (b *Builder) loadRecord(id string) (*record, error) {
	dir := filepath.Join(b.records(), id)
	text, err := os.ReadFile(filepath.Join(dir, "build.json"))
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if len(s.Sealed) > 0 {
		plain, err := b.o.Open(s.Sealed, id)
		if err != nil {
			return nil, err
		}
		if err := unseal(plain, &s.Request); err != nil {
			return nil, err
		}
	}
	s.Build.ProjectID = s.Project
	r := &record{b: b, dir: dir, caller: &s.Caller, req: s.Request, same: s.Same, deaths: s.Deaths, build: s.Build, done: make(chan struct{}), news: make(chan struct{})}
	if s.Build.State.Ended() {
		r.req, r.events = bothy.BuildRequest{}, s.Events
	}
	if info, err := os.Stat(r.logFile()); err == nil {
		r.bytes = info.Size()
	}
	if r.events == 0 {
		r.events, err = countLines(r.logFile())
	}
	return r, err
}

func (r *record) logFile() string { return filepath.Join(r.dir, "log.jsonl") }

// contexts are those that the build needs. One that has ended needs none.
func (r *record) contexts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return contextsOf(&r.req)
}

// size is how many bytes the log has.
func (r *record) size() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// confidential is the part of a request that is stored encrypted.
type confidential struct {
	Secrets    []bothy.BuildSecret   `json:"secrets,omitempty"`
	Registries []bothy.RegistryLogin `json:"registries,omitempty"`
}

// unseal restores it. Earlier servers sealed only the secrets.
func unseal(plain []byte, req *bothy.BuildRequest) error {
	if json.Unmarshal(plain, &req.Secrets) == nil {
		return nil
	}
	var c confidential
	err := json.Unmarshal(plain, &c)
	req.Secrets, req.Registries = c.Secrets, c.Registries
	return err
}

func countLines(path string) (n int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		n++
	}
	return n, lines.Err()
}

const (
	maxEvent = 1 << 20
	// maxEvents and maxLog limit the log of a build whose commands never stop printing.
	maxEvents = 200_000
	maxLog    = 32 << 20
	// maxDetail limits the error of a build.
	maxDetail = 4 << 10
)

// save writes build.json. The caller holds the lock, or has exclusive access.
func (r *record) save() error {
	s := stored{Build: r.build, Project: r.build.ProjectID, Caller: *r.caller, Request: r.req, Same: r.same, Deaths: r.deaths, Events: r.logged}
	s.Request.Secrets, s.Request.Registries = nil, nil
	if len(r.req.Secrets)+len(r.req.Registries) > 0 && !r.build.State.Ended() {
		plain, err := json.Marshal(confidential{r.req.Secrets, r.req.Registries})
		if err != nil {
			return err
		}
		if s.Sealed, err = r.b.o.Seal(plain, r.build.ID); err != nil {
			return err
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, ".build.json")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(r.dir, "build.json"))
}

func (r *record) view() *bothy.Build {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.build
	return &c
}

// started records that the build runs. It must not if that cannot be stored: a server that dies of
// it would not know.
func (r *record) started() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	r.build.State, r.build.StartedAt = bothy.BuildRunning, &now
	r.deaths, r.running = r.deaths+1, true
	return r.save()
}

// stopped records that the server has stopped the build in order.
func (r *record) stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.deaths, r.running = r.deaths-1, false
		r.saveLogged()
	}
}

func (r *record) saveLogged() {
	if err := r.save(); err != nil {
		r.b.log.Error("cannot store the state of a build", "build", r.build.ID, "error", err)
	}
}

// requeue prepares a build of the previous server to begin again.
func (r *record) requeue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.build.State, r.build.StartedAt = bothy.BuildQueued, nil
	r.build.Done, r.build.Cached = 0, 0
}

// count records a completed step.
func (r *record) count(cached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.build.Done++
	if cached {
		r.build.Cached++
	}
}

// left records the sandbox that a failed command leaves.
func (r *record) left(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.build.SandboxID = sandbox
}

// finish ends the build. A build that was stopped by the end of the server stays unfinished:
// the next server continues it.
func (r *record) finish(t *bothy.Template, err error) {
	if err != nil && r.b.background.Err() != nil && !errors.Is(err, errCancelled) {
		r.stopped()
		return
	}
	last := bothy.BuildEvent{Step: "done", Percent: 100, Template: t}
	r.mu.Lock()
	now := time.Now().UTC()
	r.build.EndedAt = &now
	switch {
	case err == nil:
		r.build.State, r.build.Digest = bothy.BuildSucceeded, t.Digest
	case errors.Is(err, errCancelled):
		r.build.State, r.build.Error = bothy.BuildCancelled, errCancelled.Detail
		last = bothy.BuildEvent{Step: "cancelled", Error: errCancelled.Detail}
	default:
		e := bothy.AsError(err)
		if e.Code == bothy.CodeInternal {
			r.b.log.Error("a build failed", "build", r.build.ID, "error", err)
		}
		r.build.State, r.build.Code, r.build.Error, r.build.Hint = bothy.BuildFailed, e.Code, e.Detail, e.Hint
		last = bothy.BuildEvent{Step: "failed", Error: e.Detail}
	}
	r.build.Error = shorten(r.build.Error, maxDetail)
	last.Error = r.build.Error
	r.req = bothy.BuildRequest{}
	r.saveLogged() // before the event that says so
	r.mu.Unlock()
	r.say(last)
	r.mu.Lock()
	r.logged = r.events
	r.saveLogged()
	if r.log != nil {
		r.log.Close()
		r.log = nil
	}
	r.mu.Unlock()
	close(r.done)
}

// shorten cuts a text to so many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// say adds an event to the log.
func (r *record) say(e bothy.BuildEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Percent == 0 && r.build.Steps > 0 {
		e.Percent = 99 * float64(r.build.Done) / float64(r.build.Steps)
	}
	final := e.Template != nil || e.Error != ""
	if full := r.events >= maxEvents || r.bytes >= maxLog; full && !final {
		if r.full {
			return
		}
		r.full, e.Message = true, "the log is full: what follows is not in it"
	}
	text, err := json.Marshal(e)
	if err == nil && !final {
		if r.guard == nil {
			r.guard = r.b.guard(r.b.records())
		}
		_, err = r.guard.Write(text)
	}
	if err == nil {
		err = r.append(text)
	}
	if err != nil {
		r.b.log.Error("cannot write the log of a build", "build", r.build.ID, "error", err)
		return
	}
	r.events++
	close(r.news)
	r.news = make(chan struct{})
}

func (r *record) append(text []byte) error {
	if r.log == nil {
		f, err := os.OpenFile(r.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		r.log = f
	}
	n, err := r.log.Write(append(text, '\n'))
	r.bytes += int64(n)
	return err
}

// follow calls fn for all events starting at a number, until the last.
func (r *record) follow(ctx context.Context, from int64, fn func(int64, bothy.BuildEvent) error) error {
	f, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for n := int64(0); ; n++ {
		ended, err := r.await(ctx, n)
		if err != nil || ended {
			return err
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read the log of a build: %w", err)
		}
		if n < from {
			continue
		}
		var e bothy.BuildEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read the log of a build: %w", err)
		}
		if err := fn(n, e); err != nil {
			return err
		}
	}
}

// open opens the log once it exists.
func (r *record) open(ctx context.Context) (*os.File, error) {
	if _, err := r.await(ctx, 0); err != nil {
		return nil, err
	}
	f, err := os.Open(r.logFile())
	if errors.Is(err, os.ErrNotExist) {
		return os.Open(os.DevNull)
	}
	return f, err
}

// await waits for the event with this number, or reports that there will be none.
func (r *record) await(ctx context.Context, n int64) (ended bool, err error) {
	for {
		r.mu.Lock()
		there, news := r.events > n, r.news
		r.mu.Unlock()
		if there {
			return false, nil
		}
		select {
		case <-news:
		case <-r.done:
			r.mu.Lock()
			there = r.events > n
			r.mu.Unlock()
			return !there, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
