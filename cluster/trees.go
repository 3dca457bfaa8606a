package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// treesPath is the prefix of requests for another host's files: KIND/NAME/FILE follow.
const treesPath = "/cluster/trees/"

// treeSilence is how long another host may send nothing during a file.
const treeSilence = 30 * time.Second

// Trees fetches files from other hosts and serves them to others.
type Trees struct {
	Hosts store.Hosts
	// Open opens a file of this host. It returns fs.ErrNotExist if there is none.
	Open func(kind, name, file string) (*os.File, error)

	transport transport
}

// NewTrees returns Trees for the hosts of an authority.
func NewTrees(hosts store.Hosts, a *Authority, open func(kind, name, file string) (*os.File, error)) *Trees {
	return &Trees{Hosts: hosts, Open: open, transport: transport{authority: a}}
}

// ServeHTTP sends a file to another host.
func (x *Trees) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, treesPath), "/", 3)
	if r.Method != http.MethodGet && r.Method != http.MethodHead || len(parts) != 3 || slices.Contains(parts, "") {
		http.Error(w, "GET KIND/NAME/FILE", http.StatusBadRequest)
		return
	}
	f, err := x.Open(parts[0], parts[1], parts[2])
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "this host does not have it", http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, "it cannot be read", http.StatusInternalServerError)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "it cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, f)
	}
}

// Has asks a host whether it has a file and is to stay. One that does not answer has none.
func (x *Trees) Has(ctx context.Context, host, kind, name, file string) (bool, error) {
	hosts, err := x.Hosts.Peers(ctx)
	if err != nil {
		return false, err
	}
	for _, h := range hosts {
		if h.Name != host || h.Self || h.State != bothy.HostUp {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, treeSilence)
		defer cancel()
		res, err := x.ask(ctx, h, http.MethodHead, kind, name, file)
		if err != nil {
			return false, nil
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK, nil
	}
	return false, nil
}

// ask sends a request for a file to a host.
func (x *Trees) ask(ctx context.Context, h bothy.ClusterHost, method, kind, name, file string) (*http.Response, error) {
	u := url.URL{Scheme: "https", Host: h.Name, Path: treesPath + kind + "/" + name + "/" + file}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	return x.transport.to(h.Name, h.Address).RoundTrip(req)
}

// errNoHost means that no host has a file.
var errNoHost = errors.New("no reachable host has it")

// Fetch writes a file of another host to a new file on this one. It asks the first host, then
// the others. The caller verifies the contents. Errors have CodeStore.
func (x *Trees) Fetch(ctx context.Context, first, kind, name, file, to string, most int64) error {
	hosts, err := x.Hosts.Peers(ctx)
	if err != nil {
		return err
	}
	hosts = slices.DeleteFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self || h.State == bothy.HostDead })
	slices.SortStableFunc(hosts, func(a, b bothy.ClusterHost) int {
		return cmp.Compare(boolInt(b.Name == first), boolInt(a.Name == first))
	})
	failed := []error{errNoHost}
	for _, h := range hosts {
		err := x.fetchFrom(ctx, h, kind, name, file, to, most)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failed = append(failed, fmt.Errorf("%s: %w", h.Name, err))
	}
	e := bothy.Errorf(bothy.CodeStore, "no reachable host has %s/%s", kind, name).
		WithHint("Start the host %s, which made it, or make it again.", first).Because(errors.Join(failed...))
	e.RetryAfter = 5 * time.Second
	return e
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (x *Trees) fetchFrom(ctx context.Context, h bothy.ClusterHost, kind, name, file, to string, most int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(treeSilence, func() { cancel(errors.New("the host stopped sending")) })
	defer quiet.Stop()
	res, err := x.ask(ctx, h, http.MethodGet, kind, name, file)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	if res.ContentLength < 0 || res.ContentLength > most {
		return fmt.Errorf("the file has %d bytes, expected at most %d", res.ContentLength, most)
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, &heard{res.Body, quiet})
	if err = errors.Join(err, f.Close()); err == nil && n != res.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return err
}

// heard resets a timer whenever data arrives.
type heard struct {
	r     io.Reader
	quiet *time.Timer
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.quiet.Reset(treeSilence)
	}
	return n, err
}
