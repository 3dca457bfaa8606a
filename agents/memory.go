package agents

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"

	"github.com/bothy-dev/bothy"
)

const (
	// maxMemory limits a memory, and maxMemories all of a store, on their way out of a sandbox.
	maxMemory   = 1 << 20
	maxMemories = 64 << 20
	// memoryEvery is how often memories are reconciled while their session works.
	memoryEvery = environments.DefaultMemorySyncInterval
)

// memory is a session's memory stores. The SDK keeps a copy of each on this host and reconciles
// it with the service; the copy is reconciled with a folder in the sandbox. The last state that
// both agreed on is in the session's record, so that a server that is killed loses no edit.
type memory struct {
	dir    string
	sync   *environments.SessionMemoryStores
	stores []volume
	open   bool // all stores are copied to this host

	mu     sync.Mutex
	placed string // the sandbox that has the memories, or ""
	last   time.Time
}

// A volume is one memory store.
type volume struct {
	id       string
	copy     string // on this host
	path     string // in the sandbox
	readOnly bool
}

// owner is the owner of the store's files in the sandbox.
func (st volume) owner() string {
	if st.readOnly {
		return "root"
	}
	return bothy.DefaultUser
}

var errNoToken = errors.New("the session has memory stores, but its work came without a token to read them")

// openMemory copies the session's memory stores to this host.
func (s *session) openMemory(ctx context.Context, p piece) error {
	stores, err := s.about.stores()
	if err != nil || stores == nil {
		return err
	}
	if p.token() == "" {
		return errNoToken
	}
	if err := os.MkdirAll(s.worker.o.Dir, 0o700); err != nil {
		return err
	}
	m := &memory{last: time.Now(), stores: stores}
	if m.dir, err = os.MkdirTemp(s.worker.o.Dir, "memory-"); err != nil {
		return err
	}
	s.memory = m
	here, err := m.session(s.id)
	if err != nil {
		return err
	}
	m.sync, err = environments.NewSessionMemoryStores(s.worker.client, environments.SessionMemoryStoresOptions{
		Workdir: m.dir, RequestOptions: s.requests, Logger: s.worker.log,
	})
	if err != nil {
		return err
	}
	err = m.sync.Download(ctx, here)
	m.open = err == nil
	return err
}

// session makes a session for the SDK, which copies each store to the path that it has in the
// session. Nothing in it comes from the service but the ids of the stores.
func (m *memory) session(id string) (*anthropic.BetaManagedAgentsSession, error) {
	d := description{ID: id}
	for i := range m.stores {
		st := &m.stores[i]
		st.copy = filepath.Join(m.dir, strconv.Itoa(i))
		r := resource{Type: "memory_store", StoreID: st.id, Access: "read_write", Path: st.copy}
		if st.readOnly {
			r.Access = "read_only"
		}
		d.Resources = append(d.Resources, r)
	}
	here, err := d.forSDK()
	if err != nil {
		return nil, err
	}
	for i, r := range here.Resources {
		x := r.AsMemoryStore()
		rel, err := filepath.Rel(m.dir, x.MountPath)
		if err != nil || !filepath.IsLocal(rel) || rel == "." || i >= len(m.stores) || x.MountPath != m.stores[i].copy {
			return nil, fmt.Errorf("the copy of the memory store %s would lie at %q, outside its folder", x.MemoryStoreID, x.MountPath)
		}
	}
	return here, nil
}

// closeMemory reconciles the memories for the last time, unless the work continues elsewhere:
// then the sandbox keeps its changes.
func (s *session) closeMemory(ctx context.Context) {
	m := s.memory
	if m == nil {
		return
	}
	defer os.RemoveAll(m.dir)
	if ctx.Err() != nil || !m.open {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, environments.MemoryFlushTimeout)
	defer cancel()
	s.reconcile(ctx, func() { m.sync.Finish(ctx) })
}

// syncMemory reconciles the memories, if that is due.
func (s *session) syncMemory(ctx context.Context) {
	m := s.memory
	if m == nil || time.Since(m.last) < memoryEvery || ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Now()
	s.reconcile(ctx, func() { m.sync.SyncIfDue(ctx) })
}

// placeMemory copies the memories into a sandbox, or reconciles them with existing ones.
func (s *session) placeMemory(ctx context.Context, sandbox string) error {
	m := s.memory
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range m.stores {
		res, err := s.worker.o.Commands.Exec(ctx, sandbox, bothy.ExecRequest{
			Command: bothy.Command{Args: []string{"sh", "-c", `mkdir -p -- "$1" && chown "$2" "$1"`, "sh", st.path, st.owner()}}, User: "root",
		})
		if err != nil {
			return err
		}
		if res.ExitCode != 0 {
			return fmt.Errorf("there is no place for the memory store %s at %s: %s", st.id, st.path, strings.TrimSpace(res.Stderr))
		}
	}
	if err := s.exchange(ctx, sandbox, true); err != nil {
		return err
	}
	m.placed = sandbox
	return nil
}

// reconcile reconciles the sandbox's memories with the copies, and these, by f, with the
// service.
func (s *session) reconcile(ctx context.Context, f func()) {
	m := s.memory
	if m.placed == "" {
		f()
		return
	}
	err := s.exchange(ctx, m.placed, false)
	if err == nil {
		f()
		err = s.exchange(ctx, m.placed, true)
	}
	if err != nil {
		s.worker.log.Warn("the memories of a session were not reconciled", "session", s.id, "error", err)
	}
}

// readOnly returns the read-only store's folder that contains a file, or "".
func (m *memory) readOnly(name string) string {
	if m == nil {
		return ""
	}
	for _, st := range m.stores {
		if st.readOnly && (name == st.path || strings.HasPrefix(name, st.path+"/")) {
			return st.path
		}
	}
	return ""
}

// exchange makes the sandbox's memories and the copies equal. Changes in the sandbox are copied
// out, unless the copy has changed, too: as in the SDK, the service's version wins. With back,
// changes in the copies are copied into the sandbox.
func (s *session) exchange(ctx context.Context, sandbox string, back bool) error {
	agreed := maps.Clone(s.now().Memory)
	if agreed == nil {
		agreed = map[string]string{}
	}
	for _, st := range s.memory.stores {
		if err := s.exchangeOne(ctx, sandbox, st, agreed, back); err != nil {
			return err
		}
	}
	return s.change(ctx, func(r *record) { r.Memory = agreed })
}

// exchangeOne is exchange for one store. agreed has the checksums of what was the same on both
// sides the last time, by the paths in the sandbox.
func (s *session) exchangeOne(ctx context.Context, sandbox string, st volume, agreed map[string]string, back bool) error {
	inside, err := s.inside(ctx, sandbox, st)
	if err != nil {
		return err
	}
	outside, err := copied(st.copy)
	if err != nil {
		return err
	}
	prefix := st.path + "/"
	if len(inside) == 0 { // an accident rather than so many deletions: the folder is filled again, as in the SDK
		maps.DeleteFunc(agreed, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
		inside = map[string][]byte{}
	}
	names := maps.Clone(inside)
	maps.Copy(names, outside)
	for name := range agreed {
		if rel, ok := strings.CutPrefix(name, prefix); ok {
			names[rel] = nil
		}
	}
	changes := map[string][]byte{} // for the sandbox; nil removes
	for name := range names {
		was, x, y := agreed[prefix+name], sumIn(inside, name), sumIn(outside, name)
		switch {
		case x == y:
		case x != was && y == was && !st.readOnly:
			if err := put(st.copy, name, inside[name], x != ""); err != nil {
				return err
			}
			y = x
		case !back:
			continue
		default:
			if x != was && !st.readOnly {
				s.worker.log.Warn("a memory was changed in the sandbox and at the service, whose version is kept", "session", s.id, "store", st.id, "path", name)
			}
			changes[name] = outside[name]
		}
		if y == "" {
			delete(agreed, prefix+name)
		} else {
			agreed[prefix+name] = y
		}
	}
	return s.apply(ctx, sandbox, st, changes)
}

func sumIn(files map[string][]byte, name string) string {
	if b, ok := files[name]; ok && b != nil {
		return sumOf(b)
	}
	return ""
}

// inside reads the memories of a store in the sandbox.
func (s *session) inside(ctx context.Context, sandbox string, st volume) (map[string][]byte, error) {
	r, err := s.worker.o.Files.ReadArchive(ctx, sandbox, st.path, "root", bothy.ArchiveOptions{})
	if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	files := map[string][]byte{}
	total := 0
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag != tar.TypeReg || name == environments.MarkerPath {
			continue
		}
		if h.Size > maxMemory {
			s.worker.log.Warn("a file is too large to be a memory", "session", s.id, "store", st.id, "path", name, "bytes", h.Size)
			continue
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		if total += len(b); total > maxMemories {
			return nil, fmt.Errorf("there are more than %d bytes of memories in %s", maxMemories, st.path)
		}
		files[name] = append([]byte{}, b...)
	}
}

// copied reads the copy of a store.
func copied(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil || rel == environments.MarkerPath {
			return err
		}
		b, err := os.ReadFile(name)
		files[rel] = append([]byte{}, b...)
		return err
	})
	return files, err
}

// put changes a file of a copy, or removes it.
func put(dir, name string, content []byte, there bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if !there {
		err := root.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, content, 0o644)
}

// apply makes changes to memories in the sandbox.
func (s *session) apply(ctx context.Context, sandbox string, st volume, changes map[string][]byte) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for name, content := range changes {
		if content == nil {
			err := s.worker.o.Files.Remove(ctx, sandbox, st.path+"/"+name, st.owner())
			if err != nil && bothy.ErrorCode(err) != bothy.CodeFileNotFound {
				return err
			}
			continue
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil || len(changes) == 0 {
		return err
	}
	return s.worker.o.Files.WriteArchive(ctx, sandbox, st.path, st.owner(), &b)
}
