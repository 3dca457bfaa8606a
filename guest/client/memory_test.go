package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// bounded returns a context that grants up to most bytes of memory, and a counter of those taken.
func bounded(t *testing.T, most int64) (context.Context, *atomic.Int64) {
	var taken atomic.Int64
	return bothy.WithMemory(t.Context(), func(_ context.Context, n int64) error {
		if taken.Add(n) > most {
			taken.Add(-n)
			return bothy.Errorf(bothy.CodeRateLimited, "full")
		}
		return nil
	}), &taken
}

func answer(t *testing.T, frames ...proto.Message) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range frames {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Error(err)
			}
			io.WriteString(w, frame(0, len(b), string(b)))
		}
		io.WriteString(w, frame(2, 2, "{}"))
	}
}

// A listing for which there is no memory is refused with a code that tells the client to retry,
// whether or not its length is declared.
func TestListingsTakeMemory(t *testing.T) {
	list := &filesystempb.ListDirResponse{}
	for range 20_000 {
		list.Entries = append(list.Entries, &filesystempb.EntryInfo{Path: strings.Repeat("x", 50)})
	}
	b, err := proto.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for name, flush := range map[string]bool{"told": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
				if flush {
					http.NewResponseController(w).Flush()
				}
				w.Write(b)
			})
			small, _ := bounded(t, 1<<20)
			if _, err := c.List(small, "/", "", 1); bothy.ErrorCode(err) != bothy.CodeRateLimited {
				t.Errorf("%v", err)
			}
			large, taken := bounded(t, 1<<30)
			got, err := c.List(large, "/", "", 1)
			if err != nil || len(got) != 20_000 || taken.Load() < int64(len(b)) {
				t.Errorf("%d entries, %d bytes taken: %v", len(got), taken.Load(), err)
			}
			// A change has already been made, so the client must not be told to retry it.
			if _, err := c.Mkdir(small, "/x", ""); bothy.ErrorCode(err) != bothy.CodeTooLarge {
				t.Errorf("an operation that changes something: %v", err)
			}
		})
	}
}

// When memory is short the output of a command is cut instead of refused: the command has run, and
// an error would look as if it had not.
func TestOutputIsCutWhereMemoryIsShort(t *testing.T) {
	frames := []proto.Message{&processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{
		Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}}}}
	for i := range 40 {
		frames = append(frames, &processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{
			Data: &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{
				Stdout: []byte(strings.Repeat(string(rune('A'+i)), 50_000))}}}}})
	}
	frames = append(frames, &processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{
		End: &processpb.ProcessEvent_EndEvent{Exited: true}}}})
	c := takenOver(t, answer(t, frames...))
	for _, most := range []int64{0, 1 << 20, 3 << 20} {
		ctx, taken := bounded(t, most)
		res, err := c.Exec(ctx, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		last := string(rune('A' + 39))
		if !res.Truncated || len(res.Stdout) < 256<<10 || len(res.Stdout) > 256<<10+int(taken.Load()) ||
			res.Stdout[0] != 'A' || !strings.HasSuffix(res.Stdout, last) {
			t.Errorf("with %d: %d bytes, truncated %v, %d taken", most, len(res.Stdout), res.Truncated, taken.Load())
		}
	}
	ctx, _ := bounded(t, 1<<30)
	if res, err := c.Exec(ctx, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil || res.Truncated || len(res.Stdout) != 2_000_000 {
		t.Errorf("with enough: %v", err)
	}
}

func TestDisplaysAreLeftOutWhereMemoryIsShort(t *testing.T) {
	display := func(n int) proto.Message {
		return &guestpb.RunResponse{Event: &guestpb.RunResponse_Display_{Display: &guestpb.RunResponse_Display{
			Data: map[string]string{"text/plain": strings.Repeat("x", n)}}}}
	}
	c := takenOver(t, answer(t, display(10), display(1<<20), display(20), &guestpb.RunResponse{Event: &guestpb.RunResponse_Ended_{Ended: &guestpb.RunResponse_Ended{}}}))
	ctx, _ := bounded(t, 64<<10)
	res, err := c.RunCode(ctx, bothy.CodeRequest{Code: "x"})
	if err != nil || !res.Truncated || len(res.Results) == 0 || len(res.Results[0]["text/plain"]) != 10 {
		b, _ := json.Marshal(res)
		t.Errorf("%s, %v", b, err)
	}
	ctx, _ = bounded(t, 1<<30)
	if res, err := c.RunCode(ctx, bothy.CodeRequest{Code: "x"}); err != nil || res.Truncated || len(res.Results) != 3 {
		t.Errorf("with enough: %v, %v", res, err)
	}
}
