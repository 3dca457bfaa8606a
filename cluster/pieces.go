package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// piecePath is where a host asks another for a piece of a file on its disk.
	piecePath = "/cluster/piece"
	// pieceTime is how long one host may take to answer.
	pieceTime = 20 * time.Second
	// indexTime is the same for an index, for which it may have to read all files of a tree.
	indexTime = 2 * time.Minute
)

// Piece is a part of a file of a tree that hosts keep on their disks as well as in object storage
// or, if File is empty, the tree's index. Kind and Name are those of the tree in the storage.
type Piece struct {
	Kind, Name, File string
	At, Size         int64
}

// Pieces fetches from other hosts pieces that the object storage has lost, and serves theirs.
type Pieces struct {
	Router *Router
	// Read reads a piece from this host's disk. It returns fs.ErrNotExist if it is not there.
	Read func(ctx context.Context, p Piece) ([]byte, error)
	// Max is the size limit of a piece in bytes.
	Max int64
}

// ServeHTTP sends a piece to another host.
func (s *Pieces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	at, err1 := strconv.ParseInt(q.Get("at"), 10, 64)
	size, err2 := strconv.ParseInt(q.Get("size"), 10, 64)
	if errors.Join(err1, err2) != nil {
		http.Error(w, "at and size must be numbers", http.StatusBadRequest)
		return
	}
	data, err := s.Read(r.Context(), Piece{q.Get("kind"), q.Get("name"), q.Get("file"), at, size})
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(data)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "this host does not have it", http.StatusNotFound)
	default:
		http.Error(w, bothy.AsError(err).Detail, http.StatusInternalServerError)
	}
}

// Ask asks the other hosts one by one for a piece, until good accepts one.
func (s *Pieces) Ask(ctx context.Context, p Piece, good func([]byte) bool) error {
	all, err := s.Router.o.Hosts.Peers(ctx)
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.Self || h.State == bothy.HostDead {
			continue
		}
		data, err := s.ask(ctx, h, p)
		if err == nil && good(data) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("no other host has %s/%s %s at %d: %w", p.Kind, p.Name, p.File, p.At, fs.ErrNotExist)
}

func (s *Pieces) ask(ctx context.Context, h bothy.ClusterHost, p Piece) ([]byte, error) {
	limit := pieceTime
	if p.File == "" {
		limit = indexTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	q := url.Values{"kind": {p.Kind}, "name": {p.Name}, "file": {p.File}, "at": {strconv.FormatInt(p.At, 10)}, "size": {strconv.FormatInt(p.Size, 10)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+h.Name+piecePath+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	res, err := s.Router.transport.to(h.Name, h.Address).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the host %s answers %s", h.Name, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, s.Max+1))
}
