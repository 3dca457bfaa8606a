package cli

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
)

// preparing emits the events of a preparation, in a history with an older one.
type preparing struct{ begun time.Time }

func (p preparing) Events(ctx context.Context, _ bothy.EventFilter, fn func(bothy.Event) error) error {
	for _, e := range []bothy.Event{
		{Time: p.begun.Add(-time.Hour), Type: bothy.EventEnginePreparing, Data: map[string]string{"engine": "microvm", "step": "an old story"}},
		{Time: p.begun.Add(time.Second), Type: bothy.EventSandboxCreated},
		{Time: p.begun.Add(time.Second), Type: bothy.EventEnginePreparing, Data: map[string]string{"engine": "microvm", "step": "fetch a kernel"}},
	} {
		if err := fn(e); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p preparing) LastEvent(context.Context) (int64, error) { return 0, nil }

// slow is a server whose sandboxes take some time to start.
type slow struct {
	bothy.SandboxService
	takes time.Duration
}

func (s slow) Create(context.Context, bothy.SandboxCreate) (*bothy.Sandbox, error) {
	time.Sleep(s.takes)
	return &bothy.Sandbox{ID: "sbx1"}, nil
}

func TestALongStartSaysWhatItWaitsFor(t *testing.T) {
	for takes, want := range map[time.Duration]string{
		time.Second:      "",
		10 * time.Second: "prepare the engine microvm: fetch a kernel\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			a := newApp(os.Stdin, &bytes.Buffer{}, &said)
			s := &session{sandboxes: slow{takes: takes}, events: preparing{time.Now()}}
			if sb, err := a.create(t.Context(), s, bothy.SandboxCreate{}); err != nil || sb.ID != "sbx1" {
				t.Error(sb, err)
			}
			if said.String() != want {
				t.Errorf("in %s it said %q, want %q", takes, said.String(), want)
			}
		})
	}
}
