package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
)

// The paths of the guest's plain HTTP calls.
const (
	filesPath   = "/bothy/files"
	archivePath = "/bothy/archive"
)

func pathQuery(path string) url.Values { return url.Values{"path": {path}} }

// Read opens a file. The caller closes it. ctx bounds the reading, too.
func (c *Client) Read(ctx context.Context, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	res, err := c.send(ctx, call{method: http.MethodGet, path: filesPath, query: pathQuery(path), user: user, retry: true})
	if err != nil {
		return nil, nil, err
	}
	info := &bothy.FileInfo{}
	if err := json.Unmarshal([]byte(res.Header.Get("Bothy-File-Info")), info); err != nil {
		res.Body.Close()
		return nil, nil, unreachable(fmt.Errorf("file info: %w", err))
	}
	return &content{ctx: ctx, res: res}, info, nil
}

// content is the body of a response. It converts errors into ours.
type content struct {
	ctx context.Context
	res *http.Response
}

func (b *content) Read(p []byte) (int, error) {
	n, err := b.res.Body.Read(p)
	if err == io.EOF {
		if failed := b.res.Trailer.Get("Bothy-Error"); failed != "" {
			err = responseError(b.res, []byte(failed))
		}
	} else if err != nil {
		err = callError(b.ctx, err)
	}
	return n, err
}

func (b *content) Close() error { return b.res.Body.Close() }

// Write stores r's bytes in a temporary file and renames it to path, making parent folders. An
// existing file keeps its owner, mode and links, unless the options say otherwise.
func (c *Client) Write(ctx context.Context, path string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	q := pathQuery(path)
	if o.Mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(o.Mode), 8))
	}
	if o.Atomic {
		q.Set("atomic", "1")
	}
	if !o.ModifiedAt.IsZero() {
		q.Set("mtime", o.ModifiedAt.Format(time.RFC3339Nano))
	}
	res, err := c.send(ctx, call{method: http.MethodPut, path: filesPath, query: q, user: o.User, body: r, size: o.Size})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := readAll(ctx, res.Body, res.ContentLength, maxError)
	info := &bothy.FileInfo{}
	if err == nil {
		err = json.Unmarshal(b, info)
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	return info, nil
}

// List returns the entries of a folder, depth levels deep.
func (c *Client) List(ctx context.Context, path, user string, depth int) ([]bothy.FileInfo, error) {
	var res filesystempb.ListDirResponse
	err := c.unary(ctx, rpc{
		procedure: filesystempb.FilesystemListDirProcedure, user: user, retry: true, long: true,
		max: maxListing, parts: 2 * maxEntries, // each entry has a time
	}, &filesystempb.ListDirRequest{Path: path, Depth: uint32(max(depth, 1))}, &res)
	if err != nil {
		return nil, err
	}
	list := make([]bothy.FileInfo, len(res.Entries))
	for i, e := range res.Entries {
		list[i] = *fileInfo(e)
	}
	return list, nil
}

// Stat describes an entry itself, not the target of a symbolic link.
func (c *Client) Stat(ctx context.Context, path, user string) (*bothy.FileInfo, error) {
	var res filesystempb.StatResponse
	err := c.unary(ctx, rpc{procedure: filesystempb.FilesystemStatProcedure, user: user, retry: true},
		&filesystempb.StatRequest{Path: path}, &res)
	if err != nil {
		return nil, err
	}
	return fileInfo(res.Entry), nil
}

// Mkdir makes a folder and those above it. An existing one is not an error.
func (c *Client) Mkdir(ctx context.Context, path, user string) (*bothy.FileInfo, error) {
	var res filesystempb.MakeDirResponse
	err := c.unary(ctx, rpc{procedure: filesystempb.FilesystemMakeDirProcedure, user: user},
		&filesystempb.MakeDirRequest{Path: path, ExistOk: true}, &res)
	if err != nil {
		return nil, err
	}
	return fileInfo(res.Entry), nil
}

// Move renames an entry, making the parent folders of its new place.
func (c *Client) Move(ctx context.Context, from, to, user string) (*bothy.FileInfo, error) {
	var res filesystempb.MoveResponse
	err := c.unary(ctx, rpc{procedure: filesystempb.FilesystemMoveProcedure, user: user, long: true},
		&filesystempb.MoveRequest{Source: from, Destination: to}, &res)
	if err != nil {
		return nil, err
	}
	return fileInfo(res.Entry), nil
}

// Remove deletes a file, or a folder with all that is in it.
func (c *Client) Remove(ctx context.Context, path, user string) error {
	return c.unary(ctx, rpc{procedure: filesystempb.FilesystemRemoveProcedure, user: user, long: true},
		&filesystempb.RemoveRequest{Path: path, MustExist: true}, &filesystempb.RemoveResponse{})
}

func fileInfo(e *filesystempb.EntryInfo) *bothy.FileInfo {
	return &bothy.FileInfo{
		Name: e.GetName(), Path: e.GetPath(), Type: bothy.FileType(e.GetKind()), Size: e.GetSize(),
		Mode: fmt.Sprintf("%04o", e.GetMode()), UID: int(e.GetUid()), GID: int(e.GetGid()),
		Owner: e.GetOwner(), Group: e.GetGroup(), ModifiedAt: e.GetModifiedTime().AsTime(), LinkTarget: e.GetSymlinkTarget(),
	}
}

var eventTypes = map[filesystempb.EventType]string{
	filesystempb.EventType_EVENT_TYPE_CREATE: "create",
	filesystempb.EventType_EVENT_TYPE_WRITE:  "write",
	filesystempb.EventType_EVENT_TYPE_REMOVE: "remove",
	filesystempb.EventType_EVENT_TYPE_RENAME: "rename",
	filesystempb.EventType_EVENT_TYPE_CHMOD:  "chmod",
}

// Watch calls fn for every change under a folder until ctx ends; that is not an error. An event
// of the type overflow means that some were missed.
func (c *Client) Watch(ctx context.Context, path, user string, recursive bool, fn func(bothy.FileEvent) error) error {
	s, err := c.open(ctx, rpc{procedure: filesystempb.FilesystemWatchDirProcedure, user: user},
		&filesystempb.WatchDirRequest{Path: path, Recursive: recursive})
	if err != nil {
		return err
	}
	defer s.close()
	var res filesystempb.WatchDirResponse
	for {
		if err := s.next(&res); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		e := res.GetFilesystem()
		if e == nil {
			continue
		}
		kind, ok := eventTypes[e.Type]
		if !ok {
			kind = "overflow"
		}
		if err := fn(bothy.FileEvent{Type: kind, Path: e.Path, Name: e.Name}); err != nil {
			return err
		}
	}
}

// ReadArchive streams a folder's entries, or one file, as a tar. The caller
// closes it.
func (c *Client) ReadArchive(ctx context.Context, path, user string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	q := pathQuery(path)
	o.SetQuery(q)
	res, err := c.send(ctx, call{method: http.MethodGet, path: archivePath, query: q, user: user, retry: true})
	if err != nil {
		return nil, err
	}
	return &content{ctx: ctx, res: res}, nil
}

// WriteArchive unpacks a tar below a folder.
func (c *Client) WriteArchive(ctx context.Context, path, user string, r io.Reader) error {
	res, err := c.send(ctx, call{method: http.MethodPut, path: archivePath, query: pathQuery(path), user: user, body: r})
	if err != nil {
		return err
	}
	return drain(res.Body)
}
