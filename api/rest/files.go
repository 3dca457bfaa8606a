package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/api/problem"
)

// fileInfoHeader describes the file in an answer that contains its bytes: a FileInfo as JSON, in
// ASCII.
const fileInfoHeader = "X-File-Info"

// FileRef names a file. It is exported because huma ignores embedded structs that are not.
type FileRef struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	Path string `query:"path" required:"true" doc:"The path; relative ones begin at /workspace."`
	User string `query:"user" doc:"The user to act as; user if empty."`
}

type (
	readInput struct {
		FileRef
		Depth int `query:"depth" minimum:"1" maximum:"64" default:"1" doc:"For a folder, how many levels to list."`
	}
	putInput struct {
		FileRef
		Atomic     bool      `query:"atomic" doc:"Replace an existing file with a new one owned by the user, in one step. Otherwise the file is written in place once the content has arrived: it keeps its owner, mode and links, the user must be allowed to write it, and a reader may for a moment see old and new content mixed."`
		Mode       string    `query:"mode" pattern:"^[0-7]{3,4}$" doc:"The permission bits in octal; 0644 when empty."`
		ModifiedAt time.Time `query:"modified_at" doc:"The time of modification to give the file."`
	}
	readArchiveInput struct {
		FileRef
		Gzip    bool     `query:"gzip" doc:"Compress the tar with gzip."`
		Exclude []string `query:"exclude,explode" maxItems:"100" doc:"What to leave out, as a .gitignore names it, and again for each more: \"node_modules\" and \"*.log\" at any depth, \"/build\" and \"src/gen\" below the folder itself, \"cache/\" only folders, \"src/**/test\" with any folders between. What is in a folder that is left out is left out with it. There is no negation with an exclamation mark."`
	}
	watchInput struct {
		FileRef
		Recursive bool `query:"recursive" doc:"Watch the folders below as well."`
	}
	writeInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body FileWrite
	}
	mkdirInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body FolderCreate
	}
	moveInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body FileMove
	}
)

// FileWrite is a small file in JSON.
type FileWrite struct {
	Path     string `json:"path" minLength:"1"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"`
	Atomic   bool   `json:"atomic,omitempty"`
	Mode     string `json:"mode,omitempty" pattern:"^[0-7]{3,4}$"`
	User     string `json:"user,omitempty"`
}

// FolderCreate names a folder to make.
type FolderCreate struct {
	Path string `json:"path" minLength:"1"`
	User string `json:"user,omitempty"`
}

// FileMove is a rename.
type FileMove struct {
	From string `json:"from" minLength:"1"`
	To   string `json:"to" minLength:"1"`
	User string `json:"user,omitempty"`
}

const filesPath = "/v1/sandboxes/{id}/files"

func (s *handlers) registerFiles() {
	svc := s.services.Files
	if svc == nil {
		return
	}
	s.registerFileBytes(svc)
	s.registerFileTree(svc)
	s.registerArchive(svc)
}

func (s *handlers) registerFileBytes(svc bothy.FileService) {
	openapi.Add(s.registry, middleware.Operation{
		ID: "read-file", Audit: true, Method: http.MethodGet, Path: filesPath, Tag: "Files",
		Summary: "Read a file or list a folder", Scope: bothy.ScopeSandboxesRead,
		Text: "A file comes as its bytes, described by the header X-File-Info; a folder as JSON. A range of bytes may be requested, to continue a download.",
		Returns: []middleware.Form{
			middleware.Bytes("application/octet-stream"),
			middleware.As[openapi.Items[bothy.FileInfo]]("application/json"),
		},
	}, func(_ context.Context, in *readInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) { s.readFile(w, r, in) }), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "put-file", Method: http.MethodPut, Path: filesPath, Tag: "Files", Raw: true,
		Summary: "Write a file", Scope: bothy.ScopeSandboxesWrite,
		Text: "The body is the file's bytes, of any size. The folders above the file are created. If the body does not arrive whole, an existing file is unchanged.",
	}, func(ctx context.Context, in *putInput) (*openapi.Response, error) {
		mode, err := parseMode(in.Mode)
		if err != nil {
			return nil, err
		}
		return s.writeBody(func(r *http.Request) (*bothy.FileInfo, error) {
			return svc.Write(r.Context(), in.ID, in.Path, r.Body, bothy.WriteOptions{Mode: mode, User: in.User, ModifiedAt: in.ModifiedAt, Atomic: in.Atomic, Size: max(r.ContentLength, 0)})
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "write-file", Method: http.MethodPost, Path: filesPath, Tag: "Files", Multipart: s.writeMultipart,
		Summary: "Write a file as JSON, or files as a form", Scope: bothy.ScopeSandboxesWrite,
		Text: "As JSON: text, or base64 for bytes. As multipart/form-data: each file is written to the path in the field `path` before it, " +
			"or else to its own filename, and the answer is `{\"items\": […]}`.",
	}, func(ctx context.Context, in *writeInput) (*openapi.Answer[*bothy.FileInfo], error) {
		mode, err := parseMode(in.Body.Mode)
		if err != nil {
			return nil, err
		}
		data, err := decodeContent(in.Body.Content, in.Body.Encoding)
		if err != nil {
			return nil, err
		}
		return one(svc.Write(ctx, in.ID, in.Body.Path, bytes.NewReader(data), bothy.WriteOptions{Mode: mode, User: in.Body.User, Atomic: in.Body.Atomic}))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-file", Method: http.MethodDelete, Path: filesPath, Tag: "Files",
		Summary: "Delete a file or folder", Scope: bothy.ScopeSandboxesWrite,
		Text: "A folder is deleted with everything in it.",
	}, func(ctx context.Context, in *FileRef) (*openapi.Empty, error) {
		return nil, svc.Remove(ctx, in.ID, in.Path, in.User)
	})
}

func (s *handlers) registerFileTree(svc bothy.FileService) {
	openapi.Add(s.registry, middleware.Operation{
		ID: "stat-file", Method: http.MethodGet, Path: filesPath + "/stat", Tag: "Files",
		Summary: "Describe a file or folder", Scope: bothy.ScopeSandboxesRead,
	}, func(ctx context.Context, in *FileRef) (*openapi.Answer[*bothy.FileInfo], error) {
		return one(svc.Stat(ctx, in.ID, in.Path, in.User))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "make-folder", Method: http.MethodPost, Path: filesPath + "/mkdir", Tag: "Files",
		Summary: "Create a folder", Scope: bothy.ScopeSandboxesWrite, Text: "And the folders above it.",
	}, func(ctx context.Context, in *mkdirInput) (*openapi.Answer[*bothy.FileInfo], error) {
		return one(svc.Mkdir(ctx, in.ID, in.Body.Path, in.Body.User))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "move-file", Method: http.MethodPost, Path: filesPath + "/move", Tag: "Files",
		Summary: "Move or rename a file or folder", Scope: bothy.ScopeSandboxesWrite,
	}, func(ctx context.Context, in *moveInput) (*openapi.Answer[*bothy.FileInfo], error) {
		return one(svc.Move(ctx, in.ID, in.Body.From, in.Body.To, in.Body.User))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "watch-files", Method: http.MethodGet, Path: filesPath + "/watch", Tag: "Files",
		Summary: "Watch a folder", Scope: bothy.ScopeSandboxesRead,
		Text:    "An event for every change, until the caller disconnects.",
		Returns: []middleware.Form{middleware.As[bothy.FileEvent](middleware.EventsType)},
	}, func(_ context.Context, in *watchInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := s.Following(r.Context())
			defer cancel()
			s.streamEvents(w, r, ctx, func(ctx context.Context, send func(string, any) error) error {
				return svc.Watch(ctx, in.ID, in.Path, in.User, in.Recursive, func(e bothy.FileEvent) error { return send("", e) })
			})
		}), nil
	})
}

func (s *handlers) registerArchive(svc bothy.FileService) {
	openapi.Add(s.registry, middleware.Operation{
		ID: "read-archive", Audit: true, Method: http.MethodGet, Path: filesPath + "/archive", Tag: "Files",
		Summary: "Download a folder as a tar", Scope: bothy.ScopeSandboxesRead,
		Text: "The entries' names are relative to the folder; for a single file it is the file's name. Modes, times, symbolic links and hard links " +
			"among the entries are kept; devices, pipes and sockets are left out.",
		Returns: []middleware.Form{middleware.Bytes("application/x-tar"), middleware.Bytes("application/gzip")},
	}, func(_ context.Context, in *readArchiveInput) (*openapi.Response, error) {
		o := bothy.ArchiveOptions{Gzip: in.Gzip, Exclude: in.Exclude}
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			tar, err := svc.ReadArchive(r.Context(), in.ID, in.Path, in.User, o)
			if err != nil {
				s.Fail(w, r, err)
				return
			}
			defer tar.Close()
			w.Header().Set("Content-Type", o.ContentType())
			s.copyOrAbort(w, r, tar)
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "write-archive", Method: http.MethodPut, Path: filesPath + "/archive", Tag: "Files", Raw: true,
		Summary: "Unpack a tar into a folder", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusNoContent,
		Text: "The body is a tar of any size, plain or compressed with gzip, which is detected by its first bytes. Existing files are replaced entry by entry. " +
			"Hard links are kept; an entry whose name or link leads out of the folder is refused.",
	}, func(_ context.Context, in *FileRef) (*openapi.Response, error) {
		return s.writeBody(func(r *http.Request) (*bothy.FileInfo, error) {
			return nil, svc.WriteArchive(r.Context(), in.ID, in.Path, in.User, r.Body)
		}), nil
	})
}

// writeBody hands the request's body on as it arrives.
func (s *handlers) writeBody(take func(r *http.Request) (*bothy.FileInfo, error)) *openapi.Response {
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(r.Body) // the caller may not be finished with it
		info, err := take(r)
		switch {
		case err != nil:
			s.Fail(w, r, err)
		case info == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			openapi.WriteJSON(w, http.StatusOK, info)
		}
	})
}

func (s *handlers) readFile(w http.ResponseWriter, r *http.Request, in *readInput) {
	body, info, err := s.services.Files.Read(r.Context(), in.ID, in.Path, in.User)
	if bothy.ErrorCode(err) == bothy.CodeIsADirectory {
		entries, err := s.services.Files.List(r.Context(), in.ID, in.Path, in.User, in.Depth)
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		openapi.WriteJSON(w, http.StatusOK, openapi.AnswerList(entries).Body)
		return
	}
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment") // errors about the sandbox's files are not ours to reveal
	h.Set(fileInfoHeader, asciiJSON(info))
	if !info.ModifiedAt.IsZero() {
		h.Set("Last-Modified", info.ModifiedAt.UTC().Format(http.TimeFormat))
	}
	if r.Method == http.MethodHead {
		h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
		return
	}
	// Files provided by the kernel claim to be empty, and are not.
	if info.Size == 0 {
		s.copyOrAbort(w, r, body)
		return
	}
	s.sendRange(w, r, body, info.Size)
}

// sendRange sends the requested part of a file, usually all of it.
func (s *handlers) sendRange(w http.ResponseWriter, r *http.Request, body io.Reader, size int64) {
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	first, last, partial := byteRange(r.Header.Get("Range"), size)
	if partial {
		if _, err := io.CopyN(io.Discard, body, first); err != nil {
			s.Fail(w, r, err)
			return
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, size))
	}
	h.Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	if partial {
		w.WriteHeader(http.StatusPartialContent)
	}
	s.copyOrAbort(w, r, io.LimitReader(body, last-first+1))
}

// byteRange parses a Range header with one range. Any other, and one outside the file, is
// answered with the whole file, as HTTP allows.
func byteRange(header string, size int64) (first, last int64, partial bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash {
		return 0, size - 1, false
	}
	last = size - 1
	if from == "" { // the last bytes
		n, err := strconv.ParseInt(to, 10, 64)
		if err != nil || n <= 0 {
			return 0, size - 1, false
		}
		return max(size-n, 0), last, true
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if to != "" && err == nil {
		last, err = strconv.ParseInt(to, 10, 64)
	}
	if err != nil || first < 0 || first >= size || last < first {
		return 0, size - 1, false
	}
	return first, min(last, size-1), true
}

// copySize is the size of the pieces in which files are sent.
const copySize = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// copyOrAbort sends bytes. If they end early, it cuts the connection, so that half a file is
// never taken for a whole one.
func (s *handlers) copyOrAbort(w http.ResponseWriter, r *http.Request, from io.Reader) {
	h := w.Header()
	if err := bothy.TakeMemory(r.Context(), copySize); err != nil {
		s.failUnsent(w, r, err)
		return
	}
	buf := copyBuffers.Get().(*[copySize]byte)
	// Hiding ReadFrom and WriteTo keeps the copy in this buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, buf[:])
	copyBuffers.Put(buf)
	if want := h.Get("Content-Length"); err == nil && want != "" && want != strconv.FormatInt(n, 10) {
		err = bothy.Errorf(bothy.CodeGuest, "the file ended after %d of %s bytes", n, want).
			WithHint("Read it again; something may be changing it.").Because(io.ErrUnexpectedEOF)
	}
	switch {
	case err == nil:
	case n == 0 && h.Get("Content-Range") == "":
		s.failUnsent(w, r, err)
	default:
		middleware.Note(r.Context(), problem.Of(err))
		_ = http.NewResponseController(w).Flush() // show that the answer had begun
		panic(http.ErrAbortHandler)
	}
}

// failUnsent answers with a problem instead of the announced bytes.
func (s *handlers) failUnsent(w http.ResponseWriter, r *http.Request, err error) {
	for _, k := range []string{"Content-Length", "Content-Disposition", "Last-Modified", "Accept-Ranges", "Content-Range", fileInfoHeader} {
		w.Header().Del(k)
	}
	s.Fail(w, r, err)
}

func parseMode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil || m > 0o7777 {
		return 0, bothy.Errorf(bothy.CodeInvalid, "mode: %q is not a file mode", s).WithHint("Give it in octal, such as 0644.")
	}
	return uint32(m), nil
}

// asciiJSON encodes JSON for use in a header.
func asciiJSON(v any) string {
	b, _ := json.Marshal(v)
	var out strings.Builder
	for _, c := range string(b) {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
	}
	return out.String()
}

// writeMultipart writes the files of a form, each as it arrives.
func (s *handlers) writeMultipart(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	written, err := s.writeParts(r, q.Get("path"), q.Get("user"))
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	openapi.WriteJSON(w, http.StatusOK, openapi.AnswerList(written).Body)
}

func (s *handlers) writeParts(r *http.Request, path, user string) ([]*bothy.FileInfo, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, badForm(err)
	}
	var written []*bothy.FileInfo
	o := bothy.WriteOptions{User: user}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badForm(err)
		}
		if fileName(part) == "" {
			if err := formField(part, &path, &o); err != nil {
				return nil, err
			}
			continue
		}
		if path == "" {
			path = fileName(part)
		}
		info, err := s.services.Files.Write(r.Context(), r.PathValue("id"), path, part, o)
		if err != nil {
			return nil, err
		}
		written = append(written, info)
		path, o.Mode = "", 0
	}
	if len(written) == 0 {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the form has no file").
			WithHint("Send a part with a filename, such as curl -F file=@main.py does.")
	}
	return written, nil
}

// formField reads a field that applies to the files after it.
func formField(part *multipart.Part, path *string, o *bothy.WriteOptions) error {
	b, err := io.ReadAll(io.LimitReader(part, 8<<10))
	if err != nil {
		return badForm(err)
	}
	switch part.FormName() {
	case "path":
		*path = string(b)
	case "user":
		o.User = string(b)
	case "mode":
		o.Mode, err = parseMode(string(b))
		return err
	default:
		return bothy.Errorf(bothy.CodeInvalid, "the form has an unknown field %q", part.FormName()).
			WithHint("The fields are path, mode and user, each before the file that it is for.")
	}
	return nil
}

func badForm(err error) error {
	return bothy.Errorf(bothy.CodeInvalid, "the form cannot be read").
		WithHint("Send multipart/form-data as curl -F does.").Because(err)
}

// fileName returns the name in the part including its folders, which FileName drops.
func fileName(part *multipart.Part) string {
	if part.FileName() == "" {
		return ""
	}
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return part.FileName()
	}
	return params["filename"]
}

// documentUploads documents what huma cannot see in calls whose bodies it does not read.
func documentUploads(paths map[string]*huma.PathItem, list *huma.Schema) {
	bytes := &huma.Schema{Type: "string", Format: "binary"}
	if p := paths[filesPath]; p != nil {
		p.Put.RequestBody = &huma.RequestBody{Required: true, Description: "The file's bytes.",
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: bytes}}}
		p.Post.RequestBody.Content["multipart/form-data"] = &huma.MediaType{Schema: &huma.Schema{
			Type: "object", Properties: map[string]*huma.Schema{
				"path": {Type: "string", Description: "The path of the file that follows; its filename if missing."},
				"mode": {Type: "string", Description: "The permission bits of the file that follows, in octal."},
				"user": {Type: "string", Description: "Who owns the files that follow."},
				"file": bytes,
			},
		}}
		// A form may hold several files.
		answer := p.Post.Responses["200"].Content["application/json"]
		answer.Schema = &huma.Schema{AnyOf: []*huma.Schema{answer.Schema, list}}
	}
	if p := paths[filesPath+"/archive"]; p != nil {
		p.Put.RequestBody = &huma.RequestBody{Required: true, Description: "The tar.",
			Content: map[string]*huma.MediaType{"application/x-tar": {Schema: bytes}, "application/gzip": {Schema: bytes}}}
	}
}
