package agents

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/repack"
)

const (
	// maxMemory limits a memory, maxMemories all of a store, and maxMemoryNumber and
	// maxMemoryNames their number and the length of their paths.
	maxMemory       = 1 << 20
	maxMemories     = 64 << 20
	maxMemoryNumber = 2000
	maxMemoryNames  = 256 << 10
	// maxMemoryArchive limits what is read of a store's folder in a sandbox, with everything that
	// is no memory, and maxMemoryEntries the number of its files and folders.
	maxMemoryArchive = 4 * maxMemories
	maxMemoryEntries = 5 * maxMemoryNumber
	// memoryBatch is how much is copied into a sandbox at once.
	memoryBatch = 4 << 20
	// memoryPage is how many memories are listed at once, which is the most that the service allows.
	memoryPage = 100
	// memoryFetches is how many are fetched at once.
	memoryFetches = 8
	// maxWarnings limits what is logged of an exchange.
	maxWarnings = 10
	// memoryTime limits an exchange.
	memoryTime = 2 * time.Minute
	// memoryEvery is how often memories are reconciled while their session works.
	memoryEvery = environments.DefaultMemorySyncInterval
)

// memory is a session's memory stores. Each is reconciled with a folder in the sandbox; nothing of
// it is kept on this host but checksums: the last state that both agreed on is in the session's
// record, so that a server that is killed loses no edit.
type memory struct {
	stores []volume

	mu      sync.Mutex
	placed  string // the sandbox that has the memories, or ""
	last    time.Time
	refused map[string]string // the checksums of what the service does not take, by path
}

// A volume is one memory store.
type volume struct {
	id       string
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

// openMemory finds the session's memory stores.
func (s *session) openMemory(p piece) error {
	stores, err := s.about.stores()
	if err != nil || stores == nil {
		return err
	}
	if p.token() == "" {
		return errNoToken
	}
	s.memory = &memory{last: time.Now(), stores: stores, refused: map[string]string{}}
	return nil
}

// closeMemory reconciles the memories for the last time, unless the work continues elsewhere:
// then the sandbox keeps its changes.
func (s *session) closeMemory(ctx context.Context) {
	m := s.memory
	if m == nil || ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, environments.MemoryFlushTimeout)
	defer cancel()
	s.reconcile(ctx)
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
	s.reconcile(ctx)
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
	if err := s.exchange(ctx, sandbox); err != nil {
		return err
	}
	m.placed = sandbox
	return nil
}

// reconcile reconciles the sandbox's memories with the service's.
func (s *session) reconcile(ctx context.Context) {
	if s.memory.placed == "" {
		return
	}
	if err := s.exchange(ctx, s.memory.placed); err != nil {
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

// exchange makes the memories in the sandbox and those of the service equal. If both sides have
// changed a memory, the service's version wins, as in the SDK.
func (s *session) exchange(ctx context.Context, sandbox string) error {
	timed, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	agreed := maps.Clone(s.now().Memory)
	if agreed == nil {
		agreed = map[string]string{}
	}
	var failed error
	for _, st := range s.memory.stores {
		x := &exchange{s: s, sandbox: sandbox, st: st, agreed: agreed}
		if failed = x.run(timed); failed != nil {
			break
		}
	}
	// What has been exchanged before a failure is agreed on as well.
	return errors.Join(failed, s.change(ctx, func(r *record) { r.Memory = agreed }))
}

// An exchange is exchange for one store.
type exchange struct {
	s       *session
	sandbox string
	st      volume
	// agreed has the checksums of what was the same on both sides the last time, by the paths in
	// the sandbox.
	agreed map[string]string
	there  map[string]listed // at the service

	warned atomic.Int32

	mu      sync.Mutex
	fetched int
	batch   bytes.Buffer // for the sandbox
	tar     *tar.Writer
	written map[string]string // what is in the batch
}

// listed is a memory of the service.
type listed struct{ id, sum string }

func (x *exchange) run(ctx context.Context) error {
	here, err := x.inside(ctx)
	if err != nil {
		return err
	}
	if x.there, err = x.list(ctx); err != nil {
		return err
	}
	prefix := x.st.path + "/"
	if len(here) == 0 { // an accident rather than so many deletions: the folder is filled again, as in the SDK
		maps.DeleteFunc(x.agreed, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
	}
	names := map[string]bool{}
	for name := range here {
		names[name] = true
	}
	for name := range x.there {
		names[name] = true
	}
	for name := range x.agreed {
		if rel, ok := strings.CutPrefix(name, prefix); ok {
			names[rel] = true
		}
	}
	deletes := max(8, min(50, len(x.there)/4)) // at once, as in the SDK
	var wanted []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, mine, theirs := x.agreed[prefix+name], here[name], x.there[name].sum
		switch {
		case mine == theirs:
			x.agree(name, mine)
			continue
		case theirs != "" && (mine == was || x.st.readOnly):
			wanted = append(wanted, name)
		case mine == was || x.st.readOnly:
			err = x.drop(ctx, name)
		case mine == "" && theirs == was:
			if deletes--; deletes >= 0 {
				err = x.remove(ctx, name)
			}
		case mine != "" && (theirs == was || theirs == ""): // a memory that is edited here and deleted there is made again
			err = x.give(ctx, name, mine)
		default:
			x.warn("a memory was changed in the sandbox and at the service, whose version is kept", "path", name)
			wanted = append(wanted, name)
		}
		if err != nil {
			return err
		}
	}
	return x.take(ctx, wanted)
}

// warn logs what is left out, but no more than a few lines, as others choose how many there are.
func (x *exchange) warn(text string, args ...any) {
	if x.warned.Add(1) > maxWarnings {
		return
	}
	x.s.worker.log.Warn(text, append([]any{"session", x.s.id, "store", x.st.id}, args...)...)
}

// agree notes that a memory is the same on both sides, "" for missing.
func (x *exchange) agree(name, sum string) {
	if sum == "" {
		delete(x.agreed, x.st.path+"/"+name)
	} else {
		x.agreed[x.st.path+"/"+name] = sum
	}
}

// inside lists the checksums of the memories in the sandbox.
func (x *exchange) inside(ctx context.Context) (map[string]string, error) {
	r, err := x.s.worker.o.Files.ReadArchive(ctx, x.sandbox, x.st.path, "root", bothy.ArchiveOptions{})
	if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	sums, skipped, example := map[string]string{}, 0, ""
	total, length := 0, 0
	err = bounded.Tar(ctx, bounded.Reader(ctx, r, maxMemoryArchive), maxMemoryEntries, func(h *tar.Header, content io.Reader) error {
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag != tar.TypeReg || name == environments.MarkerPath {
			return nil
		}
		if h.Size > maxMemory || !repack.ProperName(name) {
			skipped, example = skipped+1, name
			if was, ok := x.agreed[x.st.path+"/"+name]; ok { // not deleted
				sums[name] = was
			}
			return nil
		}
		b, err := bounded.ReadAll(ctx, content, maxMemory)
		if err != nil {
			return err
		}
		sums[name] = sumOf(b)
		total, length = total+len(b), length+len(name)
		if total > maxMemories || len(sums) > maxMemoryNumber || length > maxMemoryNames {
			return fmt.Errorf("there are more than %d memories or %d bytes of memories, or their paths are too long", maxMemoryNumber, maxMemories)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the folder %s: %w", x.st.path, err)
	}
	if skipped > 0 {
		x.warn("files cannot be memories, as they are too large or for their names", "number", skipped, "path", fmt.Sprintf("%.300q", example))
	}
	return sums, nil
}

// list lists the memories of the service.
func (x *exchange) list(ctx context.Context) (map[string]listed, error) {
	all, skipped, length, pages := map[string]listed{}, 0, 0, 0
	params := anthropic.BetaMemoryStoreMemoryListParams{View: anthropic.BetaManagedAgentsMemoryViewBasic, Limit: param.NewOpt[int64](memoryPage)}
	for {
		page, err := x.s.worker.client.Beta.MemoryStores.Memories.List(ctx, x.st.id, params, x.s.requests...)
		if err != nil {
			return nil, fmt.Errorf("the memory store %s cannot be listed: %s", x.st.id, plainly(err))
		}
		for _, m := range page.Data {
			name := strings.TrimLeft(m.Path, "/")
			_, err := hex.DecodeString(m.ContentSha256)
			switch {
			case m.Type != "memory" || name == environments.MarkerPath:
				continue
			case !repack.ProperName(name) || !idForm.MatchString(m.ID) || err != nil || len(m.ContentSha256) != 64 || m.ContentSizeBytes > maxMemory:
				skipped++
				continue
			}
			all[name] = listed{m.ID, m.ContentSha256}
			length += len(name)
		}
		if pages++; len(all)+skipped > maxMemoryNumber || length > maxMemoryNames || pages > maxMemoryNumber {
			return nil, fmt.Errorf("the memory store %s has more than %d memories, or their paths are too long", x.st.id, maxMemoryNumber)
		}
		if page.NextPage == "" || len(page.Data) == 0 {
			break
		}
		params.Page = param.NewOpt(page.NextPage)
	}
	for name := range all { // a memory below another cannot be a file
		for at := path.Dir(name); at != "."; at = path.Dir(at) {
			if _, ok := all[at]; ok {
				delete(all, name)
				skipped++
				break
			}
		}
	}
	if skipped > 0 {
		x.warn("memories of the service are left out, as they are too large or for their paths", "number", skipped)
	}
	return all, nil
}

// give copies a memory from the sandbox to the service. What the service does not take is kept
// back until it changes.
func (x *exchange) give(ctx context.Context, name, sum string) error {
	full := x.st.path + "/" + name
	if x.s.memory.refused[full] == sum {
		return nil
	}
	b, err := x.read(ctx, full)
	switch bothy.ErrorCode(err) {
	case "":
	case bothy.CodeFileNotFound: // removed since
		return nil
	case bothy.CodePermission:
		x.s.memory.refused[full] = sum
		x.warn("a memory cannot be read in the sandbox", "path", name, "error", err)
		return nil
	default:
		return err
	}
	memories := x.s.worker.client.Beta.MemoryStores.Memories
	switch m, there := x.there[name]; {
	case len(b) > maxMemory || !utf8.Valid(b):
		err = errNotText
	case there:
		_, err = memories.Update(ctx, m.id, anthropic.BetaMemoryStoreMemoryUpdateParams{
			MemoryStoreID: x.st.id, Content: param.NewOpt(string(b)),
			Precondition: anthropic.BetaManagedAgentsPreconditionParam{
				Type: anthropic.BetaManagedAgentsPreconditionTypeContentSha256, ContentSha256: param.NewOpt(m.sum),
			},
		}, x.s.requests...)
	default:
		_, err = memories.New(ctx, x.st.id, anthropic.BetaMemoryStoreMemoryNewParams{Path: "/" + name, Content: param.NewOpt(string(b))}, x.s.requests...)
	}
	switch {
	case err == nil:
		x.agree(name, sumOf(b))
	case errors.Is(err, errNotText), isStatus(err, http.StatusBadRequest, http.StatusRequestEntityTooLarge):
		x.s.memory.refused[full] = sum
		x.warn("a memory is not taken by the service until it changes", "path", name, "error", plainly(err))
	case isStatus(err, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed): // changed meanwhile
	default:
		return fmt.Errorf("the memory %s cannot be uploaded: %s", full, plainly(err))
	}
	return nil
}

var errNotText = errors.New("it is not text of at most a megabyte")

func (x *exchange) read(ctx context.Context, name string) ([]byte, error) {
	r, _, err := x.s.worker.o.Files.Read(ctx, x.sandbox, name, x.st.owner())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxMemory+1))
}

// remove removes a memory of the service that was removed in the sandbox.
func (x *exchange) remove(ctx context.Context, name string) error {
	m := x.there[name]
	_, err := x.s.worker.client.Beta.MemoryStores.Memories.Delete(ctx, m.id, anthropic.BetaMemoryStoreMemoryDeleteParams{
		MemoryStoreID: x.st.id, ExpectedContentSha256: param.NewOpt(m.sum),
	}, x.s.requests...)
	switch {
	case err == nil, isStatus(err, http.StatusNotFound):
		x.agree(name, "")
	case isStatus(err, http.StatusConflict, http.StatusPreconditionFailed): // changed meanwhile
	default:
		return fmt.Errorf("the memory %s/%s cannot be deleted: %s", x.st.path, name, plainly(err))
	}
	return nil
}

// drop removes a memory of the sandbox that was removed at the service.
func (x *exchange) drop(ctx context.Context, name string) error {
	err := x.s.worker.o.Files.Remove(ctx, x.sandbox, x.st.path+"/"+name, x.st.owner())
	if err != nil && bothy.ErrorCode(err) != bothy.CodeFileNotFound {
		return err
	}
	x.agree(name, "")
	return nil
}

// take copies memories from the service into the sandbox.
func (x *exchange) take(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var fetchers sync.WaitGroup
	next := make(chan string)
	for range memoryFetches {
		fetchers.Go(func() {
			for name := range next {
				if err := x.takeOne(ctx, name); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	fetchers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return x.flush(ctx)
}

func (x *exchange) takeOne(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m, err := x.fetch(ctx, x.there[name])
	if m == nil || err != nil {
		return err
	}
	if len(m.Content) > maxMemory || sumOf([]byte(m.Content)) != m.ContentSha256 {
		x.warn("a memory of the service is left out, as it is too large or its checksum is wrong", "path", name)
		return nil
	}
	return x.put(ctx, name, m)
}

// fetch returns a memory of the service, or nil if it was deleted meanwhile.
func (x *exchange) fetch(ctx context.Context, m listed) (*anthropic.BetaManagedAgentsMemory, error) {
	got, err := x.s.worker.client.Beta.MemoryStores.Memories.Get(ctx, m.id, anthropic.BetaMemoryStoreMemoryGetParams{
		MemoryStoreID: x.st.id, View: anthropic.BetaManagedAgentsMemoryViewFull,
	}, x.s.requests...)
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the memory %s of %s cannot be fetched: %s", m.id, x.st.id, plainly(err))
	}
	return got, nil
}

// put adds a memory to what is copied into the sandbox.
func (x *exchange) put(ctx context.Context, name string, m *anthropic.BetaManagedAgentsMemory) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fetched += len(m.Content); x.fetched > maxMemories {
		return fmt.Errorf("there are more than %d bytes of memories in %s", maxMemories, x.st.id)
	}
	if x.tar == nil {
		x.batch.Reset()
		x.tar, x.written = tar.NewWriter(&x.batch), map[string]string{}
	}
	if err := x.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(m.Content)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := io.WriteString(x.tar, m.Content); err != nil {
		return err
	}
	x.written[name] = m.ContentSha256
	if x.batch.Len() < memoryBatch {
		return nil
	}
	return x.flush(ctx)
}

// flush copies the batch into the sandbox.
func (x *exchange) flush(ctx context.Context) error {
	if x.tar == nil {
		return nil
	}
	err := x.tar.Close()
	x.tar = nil
	if err == nil {
		err = x.s.worker.o.Files.WriteArchive(ctx, x.sandbox, x.st.path, x.st.owner(), &x.batch)
	}
	if err != nil {
		return err
	}
	for name, sum := range x.written {
		x.agree(name, sum)
	}
	return nil
}
