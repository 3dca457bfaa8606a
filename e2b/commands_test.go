package e2b

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// TestCallsTakeMemory checks that a command of many short arguments is accounted for by what it
// is decoded to, whether or not its length is known, and that it reaches the agent unchanged.
func TestCallsTakeMemory(t *testing.T) {
	d := New(Services{Server: edgeServer{}}, Config{})
	for arguments, want := range map[int]int64{1: 0, 10_000: 10_000 * 2 * 16, 1_000_000: 1_000_000 * 2 * 16, 3_000_000: -1} {
		sent, err := proto.Marshal(&processpb.StartRequest{Process: &processpb.ProcessConfig{Args: make([]string, arguments)}})
		if err != nil {
			t.Fatal(err)
		}
		for _, known := range []bool{true, false} {
			var taken int64
			ctx := bothy.WithMemory(t.Context(), func(_ context.Context, n int64) error { taken += n; return nil })
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/process.Process/Start", bytes.NewReader(sent))
			r.Header.Set("Content-Type", "application/proto")
			if !known {
				r.ContentLength = -1
			}
			err := d.noteCall(r, target{})
			if want < 0 {
				if bothy.ErrorCode(err) != bothy.CodeTooLarge {
					t.Errorf("%d arguments, length known %v: %v", arguments, known, err)
				}
				continue
			}
			if err != nil || taken < want {
				t.Errorf("%d arguments, length known %v: %d bytes taken, %v", arguments, known, taken, err)
			}
			if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, sent) || r.ContentLength != int64(len(sent)) {
				t.Errorf("%d arguments, length known %v: %d bytes of %d are passed on, %v", arguments, known, len(got), len(sent), err)
			}
		}
	}
}
