package s3

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// Objects that the storage acknowledged but does not have are uploaded again before the tree counts
// as stored.
func TestLostObjectsAreUploadedAgain(t *testing.T) {
	h := newHost(t, nil)
	var chunks, indexes atomic.Int32
	mend := h.server.InjectFaults(s3test.Faults{Lose: func(r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/"+indexName) {
			return indexes.Add(1) == 1
		}
		return chunks.Add(1)%2 == 1 && chunks.Load() < 4
	}})
	defer mend()
	want := files()
	h.add("one", want)
	h.keep("one")
	if chunks.Load() < 2 || indexes.Load() != 2 {
		t.Errorf("%d chunks and %d indexes were uploaded", chunks.Load(), indexes.Load())
	}
	mend()
	h.forget()
	h.wantFiles("one", want)
}
