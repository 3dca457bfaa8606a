package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/bothy-dev/bothy/internal/bounded"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Limits of an image's description in a registry. Its decoded form takes far more memory than its
// text, so that also the number of items counts.
const (
	maxAnswer    = 4 << 20
	maxConfig    = 4 << 20
	maxItems     = 50_000
	maxLayers    = 500
	maxManifests = 16 // an index, those in it, and what is asked again
)

// errImmodest says how a registry's answer is larger than any image's.
type errImmodest string

func (e errImmodest) Error() string { return string(e) }

func immodest(format string, args ...any) error { return errImmodest(fmt.Sprintf(format, args...)) }

// modest limits the answers of a registry for one image, except the content of blobs, whose size the
// manifest says. Nothing is decompressed on the way.
type modest struct {
	http.RoundTripper
	manifests atomic.Int64
}

func (t *modest) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept-Encoding", "identity")
	path := asked(r)
	manifest := r.Method == http.MethodGet && strings.Contains(path, "/manifests/")
	if manifest && t.manifests.Add(1) > maxManifests {
		return nil, immodest("it is behind more than %d manifests", maxManifests)
	}
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet && strings.Contains(path, "/blobs/") && res.StatusCode < 300 {
		return res, nil
	}
	res.Body = &limitedBody{res.Body, bounded.Reader(r.Context(), res.Body, maxAnswer)}
	if !manifest || res.StatusCode != http.StatusOK {
		return res, nil
	}
	text, err := bounded.ReadAll(r.Context(), res.Body, maxAnswer)
	res.Body.Close()
	if err == nil {
		err = countItems("manifest", text)
	}
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	return res, nil
}

// asked is the path that was asked for before any redirects.
func asked(r *http.Request) string {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return r.URL.Path
}

type limitedBody struct {
	io.Closer
	limited io.Reader
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.limited.Read(p)
	if limit, ok := errors.AsType[*bounded.Error](err); ok {
		err = immodest("an answer of the registry has %v", limit)
	}
	return n, err
}

// countItems refuses a JSON document of very many items.
func countItems(what string, text []byte) error {
	if n := bytes.Count(text, []byte{','}); n >= maxItems {
		return immodest("its %s has %d items, more than %d", what, n, maxItems)
	}
	return nil
}

// checkDescription refuses an image whose description is not that of any real one, before its parts are
// fetched.
func checkDescription(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return immodest("its config has %d bytes, which may be up to %d MB", m.Config.Size, maxConfig>>20)
	}
	if len(m.Layers) > maxLayers {
		return immodest("it has %d layers, more than %d", len(m.Layers), maxLayers)
	}
	left := int64(maxImageBytes)
	for i, l := range m.Layers {
		if l.Size < 0 || l.Size > left {
			return immodest("its layer %d has %d bytes, and all together may have %d GB", i+1, l.Size, int64(maxImageBytes)>>30)
		}
		left -= l.Size
	}
	text, err := img.RawConfigFile() // it is fetched here
	if err != nil {
		return err
	}
	return countItems("config", text)
}
