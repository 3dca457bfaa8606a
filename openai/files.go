package openai

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
)

// depth is how many folders deep a list goes.
const depth = 64

type file struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	CreatedAt int64  `json:"created_at"`
	Bytes     int64  `json:"bytes"`
	Container string `json:"container_id"`
	Path      string `json:"path"`
	Source    string `json:"source"`
}

const filePrefix = "cfile_"

// ref is a file of a container. Its id contains both, so that nothing has to be stored.
type ref struct{ container, path string }

func (f ref) id() string {
	return filePrefix + base64.RawURLEncoding.EncodeToString([]byte(f.container+strings.TrimPrefix(f.path, Root)))
}

func refOf(id string) (ref, error) {
	text, ok := strings.CutPrefix(id, filePrefix)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	container, rel, slash := strings.Cut(string(raw), "/")
	full := path.Join(Root, rel)
	if !ok || err != nil || !slash || !utf8.Valid(raw) || full != Root+"/"+rel || strings.ContainsRune(rel, 0) {
		return ref{}, bothy.Errorf(bothy.CodeFileNotFound, "file %q was not found", id).
			WithHint("The ids of a container's files begin with %s: client.containers.files.list tells them.", filePrefix)
	}
	return ref{container, full}, nil
}

func fileOf(container string, i *bothy.FileInfo) file {
	return file{
		ID: ref{container, i.Path}.id(), Object: "container.file", CreatedAt: i.ModifiedAt.Unix(), Bytes: i.Size,
		Container: container, Path: i.Path, Source: "user",
	}
}

// createFile takes a form with the file's bytes, or the id of another container's file.
func (d *Door) createFile(w http.ResponseWriter, r *http.Request) error {
	sb, err := d.live(r)
	if err != nil {
		return err
	}
	var info *bothy.FileInfo
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		info, err = d.upload(r, sb.ID)
	} else {
		var in struct {
			FileID string `json:"file_id"`
		}
		if err = read(w, r, &in); err == nil && in.FileID == "" {
			err = invalid("there is no file").WithHint("Send one in a form, as its field file, or a file_id in JSON.")
		}
		if err == nil {
			info, err = d.copyIn(r.Context(), sb.ID, in.FileID)
		}
	}
	if err != nil {
		return err
	}
	d.Note(r, sb.ID, info.Path, "")
	return reply(w, http.StatusOK, fileOf(sb.ID, info))
}

// unescape undoes the escaping of names in forms.
var unescape = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// upload stores the file in a form as it arrives.
func (d *Door) upload(r *http.Request, container string) (*bothy.FileInfo, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, invalid("the form cannot be read: %v", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, invalid("the form has no field file").WithHint("Send the file's bytes in the field file.")
		}
		if err != nil {
			return nil, invalid("the form did not arrive whole: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		name := unescape.Replace(part.FileName())
		if name == "" || name == "." || name == ".." || name == "/" {
			return nil, invalid("the file has no name").WithHint("Give it one: file=(\"name.txt\", content).")
		}
		return d.write(r.Context(), container, name, part, 0)
	}
}

func (d *Door) write(ctx context.Context, container, name string, from io.Reader, size int64) (*bothy.FileInfo, error) {
	full := Root + "/" + name
	info, err := d.Files.Write(ctx, container, full, from, bothy.WriteOptions{Size: size})
	if err != nil {
		return nil, err
	}
	info.Path = full
	return info, nil
}

// source is the file with an id, which must be that of a container's file.
func (d *Door) source(ctx context.Context, id string) (ref, error) {
	f, err := refOf(id)
	if err != nil {
		return f, unsupported("file %q cannot be copied: this server keeps files in containers only", id).
			WithHint("Upload its bytes, or give the id of a container's file.")
	}
	_, err = d.find(ctx, f.container)
	return f, err
}

// copyIn copies the file with an id to a container, under its own name.
func (d *Door) copyIn(ctx context.Context, container, id string) (*bothy.FileInfo, error) {
	f, err := d.source(ctx, id)
	if err != nil {
		return nil, err
	}
	if to := (ref{container, Root + "/" + path.Base(f.path)}); to == f {
		return d.Files.Stat(ctx, container, f.path, "")
	}
	from, info, err := d.Files.Read(ctx, f.container, f.path, "")
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return d.write(ctx, container, path.Base(f.path), from, info.Size)
}

func (d *Door) listFiles(w http.ResponseWriter, r *http.Request) error {
	after, limit, ascending, err := paging(r.URL.Query())
	if err != nil {
		return err
	}
	sb, err := d.live(r)
	if err != nil {
		return err
	}
	entries, err := d.Files.List(r.Context(), sb.ID, Root, "", depth)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(i bothy.FileInfo) bool { return i.Type != bothy.FileRegular })
	slices.SortFunc(entries, func(a, b bothy.FileInfo) int {
		order := a.ModifiedAt.Compare(b.ModifiedAt)
		if order == 0 {
			order = strings.Compare(a.Path, b.Path)
		}
		if !ascending {
			order = -order
		}
		return order
	})
	id := func(i bothy.FileInfo) string { return ref{sb.ID, i.Path}.id() }
	if entries, err = behind(entries, after, id); err != nil {
		return err
	}
	more := len(entries) > limit
	files := []file{}
	for i := range entries[:min(limit, len(entries))] {
		files = append(files, fileOf(sb.ID, &entries[i]))
	}
	p := pageOf(files, limit, func(f file) string { return f.ID })
	p.HasMore = more
	return reply(w, http.StatusOK, p)
}

// named returns the file that a call is about.
func (d *Door) named(r *http.Request) (f ref, err error) {
	sb, err := d.live(r)
	if err != nil {
		return f, err
	}
	if f, err = refOf(r.PathValue("file")); err == nil && f.container != sb.ID {
		err = bothy.Errorf(bothy.CodeFileNotFound, "file %q is in another container", r.PathValue("file")).
			WithHint("It is in %s.", f.container)
	}
	if err == nil {
		d.Note(r, sb.ID, f.path, "")
	}
	return f, err
}

func (d *Door) getFile(w http.ResponseWriter, r *http.Request) error {
	f, err := d.named(r)
	if err != nil {
		return err
	}
	info, err := d.Files.Stat(r.Context(), f.container, f.path, "")
	if err != nil {
		return err
	}
	info.Path = f.path
	return reply(w, http.StatusOK, fileOf(f.container, info))
}

func (d *Door) removeFile(w http.ResponseWriter, r *http.Request) error {
	f, err := d.named(r)
	if err != nil {
		return err
	}
	if err := d.Files.Remove(r.Context(), f.container, f.path, ""); err != nil {
		return err
	}
	return reply(w, http.StatusOK, deletion{f.id(), "container.file.deleted", true})
}

// copySize is the size of the pieces in which files are sent.
const copySize = 64 << 10

func (d *Door) content(w http.ResponseWriter, r *http.Request) error {
	f, err := d.named(r)
	if err != nil {
		return err
	}
	from, info, err := d.Files.Read(r.Context(), f.container, f.path, "")
	if err != nil {
		return err
	}
	defer from.Close()
	if err := bothy.TakeMemory(r.Context(), copySize); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, make([]byte, copySize))
	if err != nil || n != info.Size {
		// Half a file must not look like a whole one.
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	return nil
}
