package agent

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/files"
)

// Headers of the plain HTTP calls.
const (
	// headerInfo describes the file that a response holds, as JSON.
	headerInfo = "Bothy-File-Info"
	// headerSHA256 is what a request's body must hash to, in hex.
	headerSHA256 = "Bothy-Content-Sha256"
	// trailerError says, as JSON, why a response failed after it had begun.
	trailerError = "Bothy-Error"
)

// target reads which file a plain HTTP call is for, and for which user.
func (a *Agent) target(r *http.Request) (*account.User, string, error) {
	req, err := a.request(r.Header)
	if err != nil {
		return nil, "", err
	}
	path, err := files.Resolve(req.base, r.URL.Query().Get("path"))
	return req.user, path, err
}

func fileInfo(i files.Info) bothy.FileInfo {
	return bothy.FileInfo{
		Name: i.Name, Path: i.Path, Type: i.Kind, Size: i.Size, Mode: modeText(files.Bits(i.Mode)),
		UID: int(i.UID), GID: int(i.GID), Owner: i.Owner, Group: i.Group,
		ModifiedAt: i.ModifiedAt.UTC(), LinkTarget: i.LinkTarget,
	}
}

// modeText writes permission bits as chmod reads them.
func modeText(bits uint32) string {
	s := strconv.FormatUint(uint64(bits), 8)
	return strings.Repeat("0", max(4-len(s), 0)) + s
}

func (a *Agent) getFile(w http.ResponseWriter, r *http.Request) {
	u, path, err := a.target(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	file, info, err := a.files.Open(u, path)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer file.Close()
	if b, err := json.Marshal(fileInfo(info)); err == nil {
		w.Header().Set(headerInfo, string(b))
	}
	serveFile(w, r, file, info)
}

// serveFile sends a file, or the requested range of it. Files provided by the kernel claim to be
// empty, and are sent as they are read.
func serveFile(w http.ResponseWriter, r *http.Request, file *os.File, info files.Info) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if spliceOut(w, r, file, info) {
		return
	}
	if info.Size > 0 {
		http.ServeContent(w, r, "", info.ModifiedAt, file)
		return
	}
	_, _ = io.Copy(w, file)
}

func (a *Agent) putFile(w http.ResponseWriter, r *http.Request) {
	u, path, err := a.target(r)
	var o files.WriteOptions
	if err == nil {
		o, err = writeOptions(r)
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	content := body(r.Body)
	if s, answer := newSpliceBody(w, r, o); s != nil {
		defer answer.close(s)
		w, content = answer, s
	}
	info, err := a.files.Write(u, path, content, o)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, fileInfo(info))
}

func writeOptions(r *http.Request) (files.WriteOptions, error) {
	var o files.WriteOptions
	q := r.URL.Query()
	if s := q.Get("mode"); s != "" {
		mode, err := strconv.ParseUint(s, 8, 12)
		if err != nil {
			return o, bothy.Errorf(bothy.CodeInvalid, "%q is not a file mode", s).WithHint("Give permission bits in octal, such as 0644.")
		}
		o.Mode = uint32(mode)
	}
	o.Atomic = q.Get("atomic") != ""
	if s := q.Get("mtime"); s != "" {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return o, bothy.Errorf(bothy.CodeInvalid, "%q is not a time", s).WithHint("Give it as in RFC 3339.")
		}
		o.ModifiedAt = at
	}
	if s := r.Header.Get(headerSHA256); s != "" {
		sum, err := hex.DecodeString(s)
		if err != nil || len(sum) != 32 {
			return o, bothy.Errorf(bothy.CodeInvalid, "%q is not a SHA-256", s).WithHint("Give 64 hexadecimal digits.")
		}
		o.SHA256 = sum
	}
	return o, nil
}

// body distinguishes a sender's failure from the disk's.
func body(r io.Reader) io.Reader { return senderReader{r} }

type senderReader struct{ r io.Reader }

func (s senderReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		err = senderError(err)
	}
	return n, err
}

func senderError(err error) error {
	return bothy.Errorf(bothy.CodeInvalid, "the content ended before it was complete").
		WithHint("Nothing was changed; send it again.").Because(err)
}

func (a *Agent) getArchive(w http.ResponseWriter, r *http.Request) {
	u, path, err := a.target(r)
	if err == nil {
		_, err = a.files.Stat(u, path)
	}
	o := bothy.ArchiveOptions{Gzip: r.URL.Query().Get("gzip") == "true", Exclude: r.URL.Query()["exclude"]}
	if err == nil {
		err = files.CheckExcludes(o.Exclude)
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", o.ContentType())
	if err := a.files.ReadArchive(u, path, w, o); err != nil {
		if b, merr := json.Marshal(newHTTPError(err)); merr == nil {
			w.Header().Set(http.TrailerPrefix+trailerError, string(b))
		}
	}
}

func (a *Agent) putArchive(w http.ResponseWriter, r *http.Request) {
	u, path, err := a.target(r)
	if err == nil {
		err = a.files.WriteArchive(u, path, body(r.Body))
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// envdTarget reads which file a call of an E2B client is for; the user is in the query.
func (a *Agent) envdTarget(r *http.Request, path string) (*account.User, string, error) {
	req, err := a.requestAs(r.URL.Query().Get("username"), r.Header)
	if err != nil {
		return nil, "", err
	}
	path, err = files.Resolve(req.base, path)
	return req.user, path, err
}

func (a *Agent) getEnvdFile(w http.ResponseWriter, r *http.Request) {
	u, path, err := a.envdTarget(r, r.URL.Query().Get("path"))
	if err != nil {
		writeError(w, r, err)
		return
	}
	file, info, err := a.files.Open(u, path)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": info.Name}))
	serveFile(w, r, file, info)
}

// envdEntry is the response to an E2B client about a file that it wrote.
type envdEntry struct {
	Name string         `json:"name"`
	Type bothy.FileType `json:"type"`
	Path string         `json:"path"`
	// Metadata is the client's metadata for it.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// metadataOf reads the metadata that a client sets on the files it writes.
func metadataOf(h http.Header) map[string]string {
	var m map[string]string
	for name := range h {
		if key, ok := strings.CutPrefix(name, "X-Metadata-"); ok && key != "" {
			if m == nil {
				m = map[string]string{}
			}
			m[strings.ToLower(key)] = h.Get(name)
		}
	}
	return m
}

// postEnvdFiles stores the body as one file, or each file of a form; in a form
// the names are the paths unless the query has one.
func (a *Agent) postEnvdFiles(w http.ResponseWriter, r *http.Request) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	entries := []envdEntry{}
	if err == nil && kind == "multipart/form-data" {
		err = a.postForm(r, multipart.NewReader(r.Body, params["boundary"]), &entries)
	} else {
		var content io.Reader
		if content, err = decoded(r); err == nil {
			err = a.postOne(r, r.URL.Query().Get("path"), content, &entries)
		}
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, entries)
}

// decoded returns the decompressed body of a request.
func decoded(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the content is not compressed as its Content-Encoding says").Because(err)
		}
		return z, nil
	default:
		return nil, bothy.Errorf(bothy.CodeInvalid, "the content encoding %q is not known", encoding).WithHint("Use gzip or none.")
	}
}

func (a *Agent) postForm(r *http.Request, form *multipart.Reader, entries *[]envdEntry) error {
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bothy.Errorf(bothy.CodeInvalid, "the form is damaged").Because(err)
		}
		if part.FormName() != "file" {
			continue
		}
		path := r.URL.Query().Get("path")
		if path == "" {
			path = partName(part)
		}
		if err := a.postOne(r, path, part, entries); err != nil {
			return err
		}
	}
}

// partName returns the whole file name of a part. FileName would cut it to its
// last element.
func partName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func (a *Agent) postOne(r *http.Request, path string, content io.Reader, entries *[]envdEntry) error {
	u, path, err := a.envdTarget(r, path)
	if err != nil {
		return err
	}
	m := metadataOf(r.Header)
	info, err := a.files.Write(u, path, body(content), files.WriteOptions{Metadata: m, Anywhere: true})
	if err == nil {
		*entries = append(*entries, envdEntry{info.Name, info.Kind, info.Path, m})
	}
	return err
}

func (a *Agent) getEnvs(w http.ResponseWriter, r *http.Request) {
	env := a.identity.get().env
	if env == nil {
		env = map[string]string{}
	}
	writeJSON(w, http.StatusOK, env)
}
