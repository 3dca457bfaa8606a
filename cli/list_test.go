package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bothy-dev/bothy"
)

// endingList lists one sandbox, and ends its reader at the third call.
type endingList struct {
	bothy.SandboxService
	calls int
	end   func()
}

func (l *endingList) List(ctx context.Context, _ bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	if l.calls++; l.calls == 3 {
		l.end()
		return bothy.Page[*bothy.Sandbox]{}, ctx.Err()
	}
	return bothy.Page[*bothy.Sandbox]{Items: []*bothy.Sandbox{{ID: "sbx1", State: bothy.StateRunning}}}, nil
}

func TestAListIsWatchedUntilItsReaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var out bytes.Buffer
		a := newApp(os.Stdin, &out, &out)
		if err := a.watchList(ctx, &session{sandboxes: &endingList{end: end}}, bothy.SandboxFilter{}, false); err != nil {
			t.Error(err)
		}
		if n := strings.Count(out.String(), "sbx1 "); n != 2 {
			t.Errorf("it printed the sandbox %d times: %q", n, out.String())
		}
	})
}
