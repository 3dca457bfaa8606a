package build

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// tarWith is a tar of headers without content, and of files after them.
func tarWith(headers []tar.Header, files ...string) []byte {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, h := range headers {
		h.ModTime = time.Unix(1e9, 0)
		_ = t.WriteHeader(&h)
	}
	_ = t.Flush()
	return append(b.Bytes(), tarOf(files...)...)
}

func (w *world) uploadAs(project string, body []byte) string {
	w.Helper()
	c, err := w.UploadContext(w.as(project), bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	return c.ID
}

// What one project has built is neither used by another nor known to it, and attributes that mean
// something to the engines' file systems come from no upload.
func TestProjectsShareNoLayers(t *testing.T) {
	w := newWorld(t)
	hiding := tar.Header{Name: "d/etc/", Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.overlay.opaque": "y"}}
	plain := tar.Header{Name: "d/etc/", Typeflag: tar.TypeDir, Mode: 0o755}
	req := bothy.BuildRequest{Dockerfile: "FROM base\nWORKDIR /srv\nCOPY d /\nADD d /again/\nRUN write /a 1"}
	req.ContextID = w.uploadAs("first", tarWith([]tar.Header{hiding}, "d/etc/new", "1"))
	if r := w.buildAs(w.as("first"), req); r.State != bothy.BuildSucceeded || !strings.Contains(r.text("etc/passwd"), "app") || r.text("etc/new") != "1" {
		t.Errorf("the first: %s %s, and /etc/passwd is %q", r.State, r.Error, r.text("etc/passwd"))
	}
	req.ContextID = w.uploadAs("second", tarWith([]tar.Header{plain}, "d/etc/new", "1"))
	r := w.buildAs(w.as("second"), req)
	if r.Cached != 0 || strings.Contains(r.log, "cached") || !strings.Contains(r.text("etc/passwd"), "app") {
		t.Errorf("the second has found %d steps: %s", r.Cached, r.log)
	}
	if r := w.buildAs(w.as("second"), req); r.Cached != r.Steps {
		t.Errorf("again it has found %d steps: %s", r.Cached, r.log)
	}
}

// Everything of a file that reaches an image is part of the key of COPY, ADD and bind mounts.
func TestKeysCoverAllOfAFile(t *testing.T) {
	reg := func(h tar.Header) []tar.Header { h.Typeflag, h.Mode = tar.TypeReg, 0o644; return []tar.Header{h} }
	for what, c := range map[string]struct {
		context []tar.Header
		same    bool
	}{
		"an attribute":     {reg(tar.Header{Name: "d/f", PAXRecords: map[string]string{"SCHILY.xattr.user.color": "red"}}), false},
		"its value":        {reg(tar.Header{Name: "d/f", PAXRecords: map[string]string{"SCHILY.xattr.user.color": "blue"}}), false},
		"a second name":    {append(reg(tar.Header{Name: "d/f"}), tar.Header{Name: "d/g", Typeflag: tar.TypeLink, Linkname: "d/f"}), false},
		"a second file":    {append(reg(tar.Header{Name: "d/f"}), reg(tar.Header{Name: "d/g"})...), false},
		"a mode":           {[]tar.Header{{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o600}}, false},
		"an owner":         {reg(tar.Header{Name: "d/f", Uid: 1000, Gid: 1000}), true},
		"overlay's":        {reg(tar.Header{Name: "d/f", PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.origin": "x"}}), true},
		"a time, and more": {reg(tar.Header{Name: "d/f", AccessTime: time.Unix(1, 0)}), true},
	} {
		for _, file := range []string{"FROM base\nCOPY d /d", "FROM base\nADD d /d", "FROM base\nRUN --mount=type=bind,source=d,target=/d show /d/f", "FROM base\nCOPY --from=more d /d"} {
			w := newWorld(t)
			request := func(headers []tar.Header) bothy.BuildRequest {
				id := w.uploadAs(bothy.DefaultProject, tarWith(headers))
				return bothy.BuildRequest{Dockerfile: file, ContextID: id, Contexts: map[string]string{"more": id}}
			}
			w.build(request(reg(tar.Header{Name: "d/f"})))
			if what == "its value" {
				w.build(request(reg(tar.Header{Name: "d/f", PAXRecords: map[string]string{"SCHILY.xattr.user.color": "red"}})))
			}
			if what == "a second file" {
				w.build(request(append(reg(tar.Header{Name: "d/f"}), tar.Header{Name: "d/g", Typeflag: tar.TypeLink, Linkname: "d/f"})))
			}
			if r := w.build(request(c.context)); r.State != bothy.BuildSucceeded || (r.Cached == 1) != c.same {
				t.Errorf("with %s, %q: %s, and %d steps were found", what, file, r.Error, r.Cached)
			}
			w.Builder.Close()
		}
	}
}

// The owners of a context are those of whoever packed it: nothing of them is in a build.
func TestContextsBelongToRoot(t *testing.T) {
	w := newWorld(t)
	id := w.uploadAs(bothy.DefaultProject, tarWith([]tar.Header{{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644, Uid: 1000, Gid: 1000}}))
	read, err := w.readContext(t.Context(), w.contextPath(bothy.DefaultProject, id))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := read.Get("d/f"); err != nil || n.UID != 0 || n.GID != 0 {
		t.Errorf("%+v %v", n, err)
	}
}

func TestWithoutTheCacheFilesAreCopiedAgain(t *testing.T) {
	w := newWorld(t)
	req := bothy.BuildRequest{Dockerfile: "FROM base\nWORKDIR /srv\nCOPY f /f\nADD f /g\nCOPY --from=base old /h", ContextID: w.upload("f", "x")}
	w.build(req)
	if r := w.build(req); r.Cached != 4 {
		t.Errorf("%d steps were found", r.Cached)
	}
	req.NoCache = true
	if r := w.build(req); r.Cached != 0 {
		t.Errorf("without the cache, %d steps were found", r.Cached)
	}
	req.NoCache = false
	if r := w.build(req); r.Cached != 4 {
		t.Errorf("after that, %d steps were found", r.Cached)
	}
}
