package cluster

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy/store"
)

// BenchmarkForward measures files that go through one host to and from another.
func BenchmarkForward(b *testing.B) {
	const size = 64 << 20
	s := &shared{}
	block := make([]byte, 256<<10)
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, block)
			_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	p := newSilentPeer(b, "two", s, answer)
	s.owner = store.Ownership{Host: "two", Address: p}
	through := newRouter(b, s)
	plain := httptest.NewServer(http.HandlerFunc(answer))
	defer plain.Close()
	client := &http.Client{Transport: &http.Transport{ReadBufferSize: 256 << 10, WriteBufferSize: 256 << 10}}
	for _, way := range []struct{ name, url string }{{"direct", plain.URL}, {"through", through.URL}} {
		url := way.url + "/v1/sandboxes/" + aSandbox + "/files/content"
		b.Run("down/"+way.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				res, err := client.Get(url)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if n != size || err != nil {
					b.Fatal(n, err)
				}
			}
		})
		b.Run("up/"+way.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPut, url, io.LimitReader(zeros{}, size))
				if err != nil {
					b.Fatal(err)
				}
				req.ContentLength = size
				res, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if string(text) != strconv.Itoa(size) || err != nil {
					b.Fatal(string(text), err)
				}
			}
		})
	}
}

// What another host sends arrives as it is, also where it ends too early.
func TestLargeAnswers(t *testing.T) {
	s := &shared{}
	content := bytes.Repeat([]byte("0123456789"), 3*peerBuffer/10+1)
	var cut atomic.Bool
	s.owner = store.Ownership{Host: "two", Address: newSilentPeer(t, "two", s, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if cut.Load() {
			_, _ = w.Write(content[:len(content)-7])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(content)
	})}
	url := newRouter(t, s).URL + "/v1/sandboxes/" + aSandbox + "/files/content"
	for _, short := range []bool{false, true} {
		cut.Store(short)
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if short != (err != nil) || !short && !bytes.Equal(got, content) {
			t.Errorf("cut off: %v: %d of %d bytes, %v", short, len(got), len(content), err)
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// newSilentPeer is a host that does not keep what it is sent.
func newSilentPeer(t testing.TB, name string, s *shared, answer http.HandlerFunc) (address string) {
	t.Helper()
	a, err := OpenAuthority(t.Context(), hosts{self: name, shared: s}, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	x := httptest.NewUnstartedServer(FromPeers(answer, http.NotFoundHandler(), http.NotFoundHandler(), http.NotFoundHandler()))
	x.TLS = a.Server()
	x.StartTLS()
	t.Cleanup(x.Close)
	return x.Listener.Addr().String()
}
