package e2b

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/bothy-dev/bothy"
)

// maxForm limits the forms that are parsed here. Larger ones are sent to the agent unchanged.
const maxForm = 256 << 10

// unwrapForm turns a form with one small file, which is how clients send most files, into a
// plain upload of that file: parsing a form inside a sandbox costs half a millisecond more. All
// other uploads are left unchanged.
func unwrapForm(r *http.Request) error {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || r.URL.Path != "/files" || r.Method != http.MethodPost || kind != "multipart/form-data" ||
		r.ContentLength <= 0 || r.ContentLength > maxForm || r.Header.Get("Content-Encoding") != "" {
		return nil
	}
	if err := bothy.TakeMemory(r.Context(), 2*r.ContentLength); err != nil {
		return err
	}
	form := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, form); err != nil {
		return invalid("the request did not arrive whole")
	}
	r.Body = io.NopCloser(bytes.NewReader(form))
	path, content, ok := onlyFile(form, params["boundary"])
	if !ok {
		return nil
	}
	q := r.URL.Query()
	if q.Get("path") == "" {
		q.Set("path", path)
		r.URL.RawQuery = q.Encode()
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Del("Content-Length")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return nil
}

// onlyFile returns the file in a form that contains nothing else.
func onlyFile(form []byte, boundary string) (path string, content []byte, ok bool) {
	parts := multipart.NewReader(bytes.NewReader(form), boundary)
	part, err := parts.NextRawPart()
	if err != nil || part.FormName() != "file" || part.Header.Get("Content-Transfer-Encoding") != "" {
		return "", nil, false
	}
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return "", nil, false
	}
	content, err = io.ReadAll(io.LimitReader(part, maxForm))
	if err != nil {
		return "", nil, false
	}
	_, err = parts.NextRawPart()
	return params["filename"], content, err == io.EOF
}
