package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// Files is the server's bothy.FileService.
type Files struct{ conn *conn }

// largeUpload is the size from which an upload first asks whether it will be accepted.
const largeUpload = 1 << 20

func fileQuery(path, user string) url.Values {
	q := url.Values{"path": {path}}
	setIf(q, "user", user)
	return q
}

// open sends a GET whose answer is bytes. The caller closes it.
func (f *Files) open(ctx context.Context, id, rest string, q url.Values) (*http.Response, error) {
	r, err := f.conn.request(ctx, http.MethodGet, sandboxPath(id, rest), q, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "*/*")
	return f.conn.send(r)
}

// Read implements bothy.FileService.
func (f *Files) Read(ctx context.Context, id, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	res, err := f.open(ctx, id, "/files", fileQuery(path, user))
	if err != nil {
		return nil, nil, err
	}
	header := res.Header.Get("X-File-Info")
	if header == "" {
		_ = res.Body.Close()
		return nil, nil, bothy.Errorf(bothy.CodeIsADirectory, "%s is a folder", path).WithHint("List it, or read a file in it.")
	}
	info := new(bothy.FileInfo)
	if err := json.Unmarshal([]byte(header), info); err != nil {
		_ = res.Body.Close()
		return nil, nil, bothy.Errorf(bothy.CodeInternal, "the description of %s cannot be read", path).
			WithHint("Use a client of about the server's version.").Because(err)
	}
	return res.Body, info, nil
}

// Write implements bothy.FileService.
func (f *Files) Write(ctx context.Context, id, path string, r io.Reader, o bothy.WriteOptions) (*bothy.FileInfo, error) {
	q := fileQuery(path, o.User)
	if o.Atomic {
		q.Set("atomic", "true")
	}
	if o.Mode != 0 {
		q.Set("mode", fmt.Sprintf("%04o", o.Mode))
	}
	setTime(q, "modified_at", o.ModifiedAt)
	if o.Size > 0 && sizeOf(r) < 0 {
		r = &sized{io.LimitReader(r, o.Size), o.Size}
	}
	info := new(bothy.FileInfo)
	if err := f.put(ctx, sandboxPath(id, "/files"), q, "application/octet-stream", r, info); err != nil {
		return nil, err
	}
	return info, nil
}

func (f *Files) put(ctx context.Context, path string, q url.Values, contentType string, body io.Reader, out any) error {
	return f.conn.upload(ctx, http.MethodPut, path, q, http.Header{"Content-Type": {contentType}}, body, out)
}

// upload sends a body of bytes, of any size, and decodes the answer into out.
func (c *conn) upload(ctx context.Context, method, path string, q url.Values, h http.Header, body io.Reader, out any) error {
	// The caller closes its own reader.
	r, err := c.request(ctx, method, path, q, io.NopCloser(body))
	if err != nil {
		return err
	}
	r.ContentLength = sizeOf(body)
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	for k, v := range h {
		r.Header[k] = v
	}
	if r.ContentLength < 0 || r.ContentLength > largeUpload {
		r.Header.Set("Expect", "100-continue")
	}
	res, err := c.send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return c.brokenOff(ctx, err)
	}
	return nil
}

// sized is a reader whose length the caller knows.
type sized struct {
	io.Reader
	size int64
}

func (s *sized) Len() int { return int(s.size) }

// sizeOf returns how much a reader will give, or -1.
func sizeOf(r io.Reader) int64 {
	switch v := r.(type) {
	case interface{ Len() int }:
		return int64(v.Len())
	case *os.File:
		info, err := v.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return -1
		}
		at, err := v.Seek(0, io.SeekCurrent)
		if err != nil || at > info.Size() {
			return -1
		}
		return info.Size() - at
	}
	return -1
}

// List implements bothy.FileService.
func (f *Files) List(ctx context.Context, id, path, user string, depth int) ([]bothy.FileInfo, error) {
	q := fileQuery(path, user)
	if depth > 1 {
		q.Set("depth", strconv.Itoa(depth))
	}
	res, err := f.open(ctx, id, "/files", q)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.Header.Get("X-File-Info") != "" {
		return nil, bothy.Errorf(bothy.CodeNotADirectory, "%s is not a folder", path).WithHint("Read it, or list the folder above it.")
	}
	var out struct{ Items []bothy.FileInfo }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return nil, f.conn.brokenOff(ctx, err)
	}
	return out.Items, nil
}

// Stat implements bothy.FileService.
func (f *Files) Stat(ctx context.Context, id, path, user string) (*bothy.FileInfo, error) {
	return get[bothy.FileInfo](ctx, f.conn, http.MethodGet, sandboxPath(id, "/files/stat"), fileQuery(path, user), nil)
}

// Mkdir implements bothy.FileService.
func (f *Files) Mkdir(ctx context.Context, id, path, user string) (*bothy.FileInfo, error) {
	in := struct {
		Path string `json:"path"`
		User string `json:"user,omitempty"`
	}{path, user}
	return get[bothy.FileInfo](ctx, f.conn, http.MethodPost, sandboxPath(id, "/files/mkdir"), nil, in)
}

// Move implements bothy.FileService.
func (f *Files) Move(ctx context.Context, id, from, to, user string) (*bothy.FileInfo, error) {
	in := struct {
		From string `json:"from"`
		To   string `json:"to"`
		User string `json:"user,omitempty"`
	}{from, to, user}
	return get[bothy.FileInfo](ctx, f.conn, http.MethodPost, sandboxPath(id, "/files/move"), nil, in)
}

// Remove implements bothy.FileService.
func (f *Files) Remove(ctx context.Context, id, path, user string) error {
	return f.conn.call(ctx, http.MethodDelete, sandboxPath(id, "/files"), fileQuery(path, user), nil, nil)
}

// Watch implements bothy.FileService.
func (f *Files) Watch(ctx context.Context, id, path, user string, recursive bool, fn func(bothy.FileEvent) error) error {
	q := fileQuery(path, user)
	if recursive {
		q.Set("recursive", "true")
	}
	return follow(ctx, f.conn, sandboxPath(id, "/files/watch"), q, fn)
}

// ReadArchive implements bothy.FileService.
func (f *Files) ReadArchive(ctx context.Context, id, path, user string, o bothy.ArchiveOptions) (io.ReadCloser, error) {
	q := fileQuery(path, user)
	o.SetQuery(q)
	res, err := f.open(ctx, id, "/files/archive", q)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// WriteArchive implements bothy.FileService.
func (f *Files) WriteArchive(ctx context.Context, id, path, user string, r io.Reader) error {
	return f.put(ctx, sandboxPath(id, "/files/archive"), fileQuery(path, user), "application/x-tar", r, nil)
}
