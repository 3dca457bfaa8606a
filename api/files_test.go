package api

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

func TestFileBytes(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	text := strings.Repeat("\x00\xff<>", 1<<20)
	info := decode[bothy.FileInfo](f, f.ok(200, f.do("PUT", files+"?path=a/ü.bin&mode=0755&user=root&modified_at=2026-01-02T03:04:05Z", text,
		header{"Content-Type": "text/html"})))
	if info.Path != "/workspace/a/ü.bin" || info.Mode != "0755" || info.Owner != "root" || info.Size != int64(len(text)) {
		t.Fatalf("%+v", info)
	}
	res := f.ok(200, f.do("GET", files+"?path=/workspace/a/ü.bin", nil))
	if res.body != text {
		t.Fatalf("%d bytes were returned", len(res.body))
	}
	for k, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff",
		"Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT",
	} {
		if got := res.Header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	if res.ContentLength != int64(len(text)) {
		t.Errorf("length %d", res.ContentLength)
	}
	described := res.Header.Get("X-File-Info")
	var told bothy.FileInfo
	if err := json.Unmarshal([]byte(described), &told); err != nil || told.Path != info.Path || strings.Contains(described, "ü") {
		t.Errorf("%q: %+v, %v", described, told, err)
	}
	if res := f.ok(200, f.do("HEAD", files+"?path=a/ü.bin", nil)); res.body != "" || res.ContentLength != int64(len(text)) {
		t.Errorf("HEAD: %d, %q", res.ContentLength, res.body)
	}
	f.failed(bothy.CodeFileNotFound, f.do("GET", files+"?path=b", nil))
}

func TestEmptyAndEndlessFiles(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(200, f.do("PUT", files+"?path=empty", nil))
	if res := f.ok(200, f.do("GET", files+"?path=empty", nil)); res.body != "" {
		t.Errorf("%q", res.body)
	}
	// The kernel's files report a size of zero.
	f.ok(200, f.do("PUT", files+"?path=proc", "content"))
	if res := f.ok(200, f.do("GET", files+"?path=proc", nil)); res.body != "content" {
		t.Errorf("%q", res.body)
	}
}

func TestRanges(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(200, f.do("PUT", files+"?path=a", "0123456789"))
	for asked, want := range map[string][3]string{
		"bytes=2-4": {"206", "234", "bytes 2-4/10"}, "bytes=7-": {"206", "789", "bytes 7-9/10"}, "bytes=-3": {"206", "789", "bytes 7-9/10"},
		"bytes=8-99": {"206", "89", "bytes 8-9/10"}, "bytes=-99": {"206", "0123456789", "bytes 0-9/10"}, "bytes=0-0": {"206", "0", "bytes 0-0/10"},
		"bytes=10-": {"200", "0123456789", ""}, "bytes=4-2": {"200", "0123456789", ""}, "bytes=0-1,3-4": {"200", "0123456789", ""},
		"bytes=x-": {"200", "0123456789", ""}, "bytes=--1": {"200", "0123456789", ""}, "lines=1-2": {"200", "0123456789", ""}, "": {"200", "0123456789", ""},
	} {
		res := f.do("GET", files+"?path=a", nil, header{"Range": asked})
		if got := [3]string{strconv.Itoa(res.StatusCode), res.body, res.Header.Get("Content-Range")}; got != want {
			t.Errorf("%q gives %q, want %q", asked, got, want)
		}
	}
}

func TestATruncatedFileIsAnError(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(200, f.do("PUT", files+"?path=broken", strings.Repeat("x", 1<<20)))
	res := f.open(t.Context(), "GET", files+"?path=broken", nil)
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("%d bytes were taken for a whole file", n)
	}
	f.ok(200, f.do("PUT", files+"?path=broken", "x")) // breaks before the first byte
	f.failed(bothy.CodeGuest, f.do("GET", files+"?path=broken", nil))
}

// An interrupted upload is not stored.
func TestBrokenUpload(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	body, in := io.Pipe()
	go func() {
		_, _ = in.Write([]byte("half"))
		in.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if res, err := f.client.Do(f.request("PUT", files+"?path=x", body)); err == nil {
		res.Body.Close()
		t.Fatalf("answered %d", res.StatusCode)
	}
	f.failed(bothy.CodeFileNotFound, f.do("GET", files+"?path=x", nil))
}

func TestFilesAsJSON(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(200, f.do("POST", files, `{"path":"a","content":"hé"}`))
	info := decode[bothy.FileInfo](f, f.ok(200, f.do("POST", files, `{"path":"b","content":"AP8=","encoding":"base64","mode":"600","user":"root"}`)))
	if info.Mode != "0600" || info.Owner != "root" {
		t.Errorf("%+v", info)
	}
	for path, want := range map[string]string{"a": "hé", "b": "\x00\xff"} {
		if res := f.ok(200, f.do("GET", files+"?path="+path, nil)); res.body != want {
			t.Errorf("%s: %q", path, res.body)
		}
	}
}

func makeForm(t *testing.T, parts ...[3]string) (io.Reader, header) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		disposition := `form-data; name="` + p[0] + `"`
		if p[1] != "" {
			disposition += `; filename="` + p[1] + `"`
		}
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, p[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, header{"Content-Type": w.FormDataContentType()}
}

func TestFilesAsForm(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	large := strings.Repeat("x", middleware.MaxJSONBytes+1) // the bound on JSON is not for files
	body, h := makeForm(t, [3]string{"path", "", "/tmp/one"}, [3]string{"mode", "", "0700"}, [3]string{"file", "ignored", large},
		[3]string{"file", "dir/two.txt", "2"}, [3]string{"user", "", "root"}, [3]string{"file", "/three", "3"})
	list := decode[openapi.Items[bothy.FileInfo]](f, f.ok(200, f.do("POST", files, body, h)))
	got := ""
	for _, i := range list.Items {
		got += i.Path + " " + i.Mode + " " + i.Owner + "\n"
	}
	if want := "/tmp/one 0700 user\n/workspace/dir/two.txt 0644 user\n/three 0644 root\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if res := f.ok(200, f.do("GET", files+"?path=/tmp/one", nil)); res.body != large {
		t.Errorf("%d bytes", len(res.body))
	}
	body, h = makeForm(t, [3]string{"file", "name", "content"})
	list = decode[openapi.Items[bothy.FileInfo]](f, f.ok(200, f.do("POST", files+"?path=/etc/x", body, h)))
	if len(list.Items) != 1 || list.Items[0].Path != "/etc/x" {
		t.Errorf("%+v", list)
	}
	for name, parts := range map[string][][3]string{
		"no file":       {{"path", "", "x"}},
		"unknown field": {{"colour", "", "red"}, {"file", "f", ""}},
		"bad mode":      {{"mode", "", "rwx"}, {"file", "f", ""}},
	} {
		body, h := makeForm(t, parts...)
		if p := f.failed(bothy.CodeInvalid, f.do("POST", files, body, h)); p.Hint == "" {
			t.Errorf("%s: no hint", name)
		}
	}
	f.failed(bothy.CodeInvalid, f.do("POST", files, "no form", header{"Content-Type": "multipart/form-data"}))
	f.failed(bothy.CodeInvalid, f.do("POST", files, "--x\r\nbroken", header{"Content-Type": "multipart/form-data; boundary=x"}))
}

func TestFolders(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(200, f.do("POST", files+"/mkdir", `{"path":"/d"}`))
	f.ok(200, f.do("PUT", files+"?path=/d/a", "1"))
	f.ok(200, f.do("PUT", files+"?path=/d/e/b", "2"))
	for query, want := range map[string]int{"": 2, "&depth=1": 2, "&depth=2": 3} {
		list := decode[openapi.Items[bothy.FileInfo]](f, f.ok(200, f.do("GET", files+"?path=/d"+query, nil)))
		if len(list.Items) != want {
			t.Errorf("%s: %+v", query, list)
		}
	}
	f.ok(200, f.do("POST", files+"/mkdir", `{"path":"/none"}`))
	if res := f.ok(200, f.do("GET", files+"?path=/none", nil)); strings.TrimSpace(res.body) != `{"items":[]}` {
		t.Errorf("%s", res.body)
	}
	moved := decode[bothy.FileInfo](f, f.ok(200, f.do("POST", files+"/move", `{"from":"/d/a","to":"/d/c"}`)))
	if moved.Path != "/d/c" {
		t.Errorf("%+v", moved)
	}
	if stat := decode[bothy.FileInfo](f, f.ok(200, f.do("GET", files+"/stat?path=/d/c", nil))); stat.Size != 1 {
		t.Errorf("%+v", stat)
	}
	f.ok(204, f.do("DELETE", files+"?path=/d", nil))
	f.failed(bothy.CodeFileNotFound, f.do("GET", files+"/stat?path=/d/e/b", nil))
	f.failed(bothy.CodeFileNotFound, f.do("GET", files+"/watch?path=/d", nil, asEvents))
}

func TestArchives(t *testing.T) {
	f := start(t)
	files := f.create() + "/files"
	f.ok(204, f.do("PUT", files+"/archive?path=/d", "a tar"))
	res := f.ok(200, f.do("GET", files+"/archive?path=/d", nil))
	if res.body != "tar of /d" || res.Header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("%q, %q", res.body, res.Header.Get("Content-Type"))
	}
	f.failed(bothy.CodeFileNotFound, f.do("GET", files+"/archive?path=/none", nil))
}
