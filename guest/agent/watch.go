package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/files"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
)

const (
	// maxWatchers bounds the polled watches, and maxEvents the events that
	// each of them holds.
	maxWatchers = 64
	maxEvents   = 4096
)

var eventTypes = map[string]filesystempb.EventType{
	files.EventCreate: filesystempb.EventType_EVENT_TYPE_CREATE,
	files.EventWrite:  filesystempb.EventType_EVENT_TYPE_WRITE,
	files.EventRemove: filesystempb.EventType_EVENT_TYPE_REMOVE,
	files.EventRename: filesystempb.EventType_EVENT_TYPE_RENAME,
	files.EventChmod:  filesystempb.EventType_EVENT_TYPE_CHMOD,
}

func (s *filesystemService) WatchDir(ctx context.Context, req *filesystempb.WatchDirRequest, stream *connect.ServerStream[filesystempb.WatchDirResponse]) error {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return err
	}
	w, err := s.a.files.Watch(u, path, req.Recursive)
	if err != nil {
		return err
	}
	defer w.Close()
	info, _ := connect.CallInfoForHandlerContext(ctx)
	idle := keepAliveInterval(info.RequestHeader())
	res := &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Start{Start: &filesystempb.WatchDirResponse_StartEvent{}}}
	for {
		if err := stream.Send(res); err != nil {
			return err
		}
		e, err := w.Next(ctx, idle)
		switch {
		case err == nil:
			res.Event = &filesystempb.WatchDirResponse_Filesystem{Filesystem: s.event(u, e, req.IncludeEntry)}
		case errors.Is(err, files.ErrIdle):
			res.Event = &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}
		default:
			return err
		}
	}
}

func keepAliveInterval(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get(headerKeepAlive))
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

func (s *filesystemService) event(u *account.User, e files.Event, withEntry bool) *filesystempb.FilesystemEvent {
	out := &filesystempb.FilesystemEvent{Name: e.Name, Path: e.Path, Type: eventTypes[e.Type]}
	if withEntry {
		if info, err := s.a.files.Stat(u, e.Path); err == nil {
			out.Entry = entry(info)
		}
	}
	return out
}

// watchers are the polled watches.
type watchers struct {
	mu   sync.Mutex
	byID map[string]*polled
}

// polled is a watch whose events are fetched by polling.
type polled struct {
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	events []*filesystempb.FilesystemEvent
	err    error
}

func (s *filesystemService) CreateWatcher(ctx context.Context, req *filesystempb.CreateWatcherRequest) (*filesystempb.CreateWatcherResponse, error) {
	u, path, err := s.a.path(ctx, req.Path)
	if err != nil {
		return nil, err
	}
	w, err := s.a.files.Watch(u, path, req.Recursive)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &polled{stop: stop, done: make(chan struct{})}
	id := rand.Text()
	if !s.a.watchers.add(id, p) {
		stop()
		w.Close()
		return nil, bothy.Errorf(bothy.CodeCapacity, "there are %d watchers already", maxWatchers).
			WithHint("Remove those that are not used any more.")
	}
	go p.run(ctx, w, func(e files.Event) *filesystempb.FilesystemEvent { return s.event(u, e, req.IncludeEntry) })
	return &filesystempb.CreateWatcherResponse{WatcherId: id}, nil
}

func (p *polled) run(ctx context.Context, w *files.Watcher, convert func(files.Event) *filesystempb.FilesystemEvent) {
	defer close(p.done)
	defer w.Close()
	for {
		e, err := w.Next(ctx, 0)
		p.mu.Lock()
		if err != nil {
			p.err = err
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		event := convert(e)
		p.mu.Lock()
		if len(p.events) < maxEvents {
			p.events = append(p.events, event)
		}
		p.mu.Unlock()
	}
}

func (s *filesystemService) GetWatcherEvents(ctx context.Context, req *filesystempb.GetWatcherEventsRequest) (*filesystempb.GetWatcherEventsResponse, error) {
	p := s.a.watchers.get(req.WatcherId)
	if p == nil {
		return nil, noWatcher(req.WatcherId)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) == 0 && p.err != nil {
		return nil, p.err
	}
	res := &filesystempb.GetWatcherEventsResponse{Events: p.events}
	p.events = nil
	return res, nil
}

func (s *filesystemService) RemoveWatcher(ctx context.Context, req *filesystempb.RemoveWatcherRequest) (*filesystempb.RemoveWatcherResponse, error) {
	p := s.a.watchers.remove(req.WatcherId)
	if p == nil {
		return nil, noWatcher(req.WatcherId)
	}
	p.stop()
	<-p.done
	return &filesystempb.RemoveWatcherResponse{}, nil
}

func noWatcher(id string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no watcher %q", id)
}

func (w *watchers) add(id string, p *polled) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byID) >= maxWatchers {
		return false
	}
	if w.byID == nil {
		w.byID = make(map[string]*polled)
	}
	w.byID[id] = p
	return true
}

func (w *watchers) get(id string) *polled {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

func (w *watchers) remove(id string) *polled {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.byID[id]
	delete(w.byID, id)
	return p
}

// close ends all watches.
func (w *watchers) close() {
	w.mu.Lock()
	all := w.byID
	w.byID = nil
	w.mu.Unlock()
	for _, p := range all {
		p.stop()
		<-p.done
	}
}
