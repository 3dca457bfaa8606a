package template

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// gzipped compresses a text in which a part is repeated.
func gzipped(t *testing.T, before, part string, times int, after string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, before)
	some := []byte(strings.Repeat(part, 1000))
	for range times / 1000 {
		_, _ = z.Write(some)
	}
	_, _ = io.WriteString(z, after)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digestOfText(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// A registry is any server that a tenant names. Whatever it answers, opening an image takes little
// memory and says what is wrong with it.
func TestAnswersOfRegistriesAreLimited(t *testing.T) {
	const usual = `{"architecture":"` + runtime.GOARCH + `","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`
	manifest := func(size int, config, more string) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"size":%d,"digest":%q}%s}`,
			types.OCIManifestSchema1, types.OCIConfigJSON, size, digestOfText([]byte(config)), more)
	}
	type answer struct {
		body     []byte
		encoding string
	}
	plain := func(text string) answer { return answer{body: []byte(text)} }
	const mb = 1_000_000
	space := strings.Repeat(" ", 8<<20)
	items := `{"history":[` + strings.Repeat("{},", 100_000) + `{}]}`
	good := manifest(len(usual), usual, "")
	for what, c := range map[string]struct {
		manifest, config answer
		want             string
	}{
		"nothing wrong":                         {plain(good), plain(usual), ""},
		"a manifest of 8 MB":                    {plain(good + space), plain(usual), "has more than 4 MB"},
		"a manifest of 100 MB, compressed":      {answer{gzipped(t, good, " ", 100*mb, ""), "gzip"}, plain(usual), "invalid"},
		"a manifest of many layers":             {plain(manifest(len(usual), usual, `,"layers":[`+strings.Repeat("{},", 100_000)+`{}]`)), plain(usual), "its manifest has 100005 items"},
		"a manifest of 501 layers":              {plain(manifest(len(usual), usual, `,"layers":[`+strings.Repeat(`{"size":1},`, 500)+`{}]`)), plain(usual), "501 layers"},
		"a layer of -1 bytes":                   {plain(manifest(len(usual), usual, `,"layers":[{"size":-1}]`)), plain(usual), "layer 1"},
		"layers that are too large together":    {plain(manifest(len(usual), usual, `,"layers":[{"size":60000000000},{"size":60000000000}]`)), plain(usual), "layer 2"},
		"settings of 8 MB":                      {plain(manifest(len(usual)+len(space), usual+space, "")), plain(usual + space), "may be up to 4 MB"},
		"settings of unknown size":              {plain(manifest(-1, usual+space, "")), plain(usual + space), "its config has -1 bytes"},
		"settings that are larger than is said": {plain(manifest(len(usual), usual+space, "")), plain(usual + space), "invalid"},
		"settings of 100 MB, compressed":        {plain(manifest(-1, "", "")), answer{gzipped(t, usual, " ", 100*mb, ""), "gzip"}, "its config has -1 bytes"},
		"settings that are compressed":          {plain(good), answer{gzipped(t, usual, " ", 0, ""), "gzip"}, "invalid"},
		"settings of many items":                {plain(manifest(len(items), items, "")), plain(items), "its config has 100000 items"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send := func(a answer) {
				if a.encoding != "" {
					w.Header().Set("Content-Encoding", a.encoding)
				}
				_, _ = w.Write(a.body)
			}
			switch {
			case strings.Contains(r.URL.Path, "/manifests/"):
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				send(c.manifest)
			case strings.Contains(r.URL.Path, "/blobs/"):
				send(c.config)
			}
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l := NewLibrary(t.TempDir(), Options{})
		_, err := l.OpenImage(t.Context(), bothy.DefaultProject, strings.TrimPrefix(s.URL, "http://")+"/a:1", nil)
		runtime.ReadMemStats(&after)
		s.Close()
		if c.want == "" && err != nil || c.want != "" && (bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", what, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
			t.Errorf("%s took %d MB", what, took)
		}
	}
}

// An index can name others, without an end.
func TestIndexesOfIndexes(t *testing.T) {
	index := []byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[]}`, types.OCIImageIndex))
	all := map[string][]byte{}
	for range 100 {
		all[digestOfText(index)] = index
		index = fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"size":%d,"digest":%q,"platform":{"os":"linux","architecture":%q}}]}`,
			types.OCIImageIndex, types.OCIImageIndex, len(index), digestOfText(index), runtime.GOARCH)
	}
	all["1"] = index
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, name, ok := strings.Cut(r.URL.Path, "/manifests/"); ok {
			asked++
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			_, _ = w.Write(all[name])
		}
	}))
	defer s.Close()
	_, err := NewLibrary(t.TempDir(), Options{}).OpenImage(t.Context(), bothy.DefaultProject, strings.TrimPrefix(s.URL, "http://")+"/a:1", nil)
	if bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || !strings.Contains(err.Error(), "more than 16 manifests") || asked > maxManifests {
		t.Errorf("after %d manifests: %v", asked, err)
	}
}

// A registry may send its clients elsewhere: what comes from there is limited like its own.
func TestAnswersFromElsewhereAreLimited(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			http.Redirect(w, r, "/elsewhere/blobs/x", http.StatusTemporaryRedirect)
		case strings.HasPrefix(r.URL.Path, "/elsewhere/"):
			_, _ = w.Write(bytes.Repeat([]byte(" "), 8<<20))
		}
	}))
	defer s.Close()
	_, err := NewLibrary(t.TempDir(), Options{}).OpenImage(t.Context(), bothy.DefaultProject, strings.TrimPrefix(s.URL, "http://")+"/a:1", nil)
	if bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || !strings.Contains(err.Error(), "more than 4 MB") {
		t.Error(err)
	}
}
