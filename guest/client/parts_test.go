package client_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// field encodes a field with bytes.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// distinct encodes n entries of a map of strings, with different keys.
func distinct(number protowire.Number, n int) (b []byte) {
	for i := range n {
		b = append(b, field(number, field(1, []byte(fmt.Sprintf("%x", i))))...)
	}
	return b
}

// allocated is how much memory f allocates, also what it has freed again.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestShortPartsAreNotFree answers every kind of call with as many of the shortest parts as fit
// into a few megabytes. However they are decoded, the host must not allocate many times as much.
func TestShortPartsAreNotFree(t *testing.T) {
	const wire = 4 << 20
	empty := func(number protowire.Number) []byte { return bytes.Repeat(field(number, nil), wire/2) }
	run := func(event protowire.Number, inner []byte) []byte { return field(event, inner) }
	for name, c := range map[string]struct {
		call   func(*client.Client) error
		body   []byte
		stream bool
	}{
		"entries of a folder":     {func(c *client.Client) error { _, err := c.List(t.Context(), "/", "", 1); return err }, empty(1), false},
		"times of one entry":      {func(c *client.Client) error { _, err := c.List(t.Context(), "/", "", 1); return err }, field(1, empty(9)), false},
		"metadata of a file":      {func(c *client.Client) error { _, err := c.Stat(t.Context(), "/", ""); return err }, field(1, distinct(11, wire/10)), false},
		"processes":               {func(c *client.Client) error { _, err := c.Processes(t.Context()); return err }, empty(1), false},
		"all processes":           {func(c *client.Client) error { _, err := c.AllProcesses(t.Context()); return err }, empty(1), false},
		"arguments of a process":  {func(c *client.Client) error { _, err := c.Processes(t.Context()); return err }, field(1, field(1, empty(2))), false},
		"variables of a process":  {func(c *client.Client) error { _, err := c.Processes(t.Context()); return err }, field(1, field(1, distinct(3, wire/10))), false},
		"contexts":                {func(c *client.Client) error { _, err := c.Contexts(t.Context()); return err }, empty(1), false},
		"warnings of an adoption": {func(c *client.Client) error { _, err := c.Adopt(t.Context(), client.Identity{Key: "key"}); return err }, empty(4), false},
		"unknown fields":          {func(c *client.Client) error { _, err := c.Stats(t.Context()); return err }, empty(1000), false},
		"formats of a result": {func(c *client.Client) error { _, err := c.RunCode(t.Context(), bothy.CodeRequest{}); return err },
			run(3, distinct(1, wire/10)), true},
		"events in an event": {func(c *client.Client) error { _, err := c.Exec(t.Context(), args("true")); return err }, empty(1), true},
		"changes of a folder": {func(c *client.Client) error {
			return c.Watch(t.Context(), "/", "", true, func(bothy.FileEvent) error { return nil })
		}, bytes.Repeat(append(field(1, nil), field(2, nil)...), 1<<20), true},
	} {
		t.Run(name, func(t *testing.T) {
			guest := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.stream {
					_, _ = io.WriteString(w, frame(0, len(c.body), ""))
				}
				_, _ = w.Write(c.body)
			})
			var err error
			got := allocated(func() { err = c.call(guest) })
			if bothy.ErrorCode(err) != bothy.CodeGuest {
				t.Errorf("%d bytes of parts are not refused: %v", len(c.body), err)
			}
			// Bytes of an unknown number are read into a buffer that grows to twice its size, and
			// the server of the test has buffers of its own.
			if most := int64(8*len(c.body) + 4<<20); got > most {
				t.Errorf("%d bytes from the guest made the host allocate %d", len(c.body), got)
			}
		})
	}
}

// TestPartsTakeMemory checks that a listing of short entries is accounted for by what it takes
// when it has been decoded.
func TestPartsTakeMemory(t *testing.T) {
	const entries = 50_000
	body := bytes.Repeat(field(1, nil), entries)
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	ctx, taken := bounded(t, 1<<30)
	used := allocated(func() {
		if list, err := c.List(ctx, "/", "", 1); err != nil || len(list) != entries {
			t.Errorf("%d entries, %v", len(list), err)
		}
	})
	if taken.Load() < used {
		t.Errorf("%d bytes of memory are accounted for, and %d were allocated", taken.Load(), used)
	}
	small, _ := bounded(t, 4<<20)
	if _, err := c.List(small, "/", "", 1); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("without memory for it: %v", err)
	}
}

// TestResultsAreCounted has code display more than a caller is given: nothing, very often.
func TestResultsAreCounted(t *testing.T) {
	const displays = 1 << 17
	one := string(field(3, nil))
	end := string(field(4, nil))
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
		many := []byte(strings.Repeat(frame(0, len(one), one), 1024))
		for range displays / 1024 {
			if _, err := w.Write(many); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, frame(0, len(end), end)+frame(2, 2, "{}"))
	})
	for most, want := range map[int64]int{1 << 40: 10_000, 1 << 20: 1 << 20 / 768} {
		ctx, taken := bounded(t, most)
		res, err := c.RunCode(ctx, bothy.CodeRequest{Code: "1"})
		if err != nil || !res.Truncated || len(res.Results) != want || taken.Load() < int64(want)*700 {
			t.Errorf("with %d bytes of memory: %d results, %d bytes taken, %v", most, len(res.Results), taken.Load(), err)
		}
	}
}

// TestEndsOfStreamsAreShort checks the JSON at the end of a stream, which is decoded as well.
func TestEndsOfStreamsAreShort(t *testing.T) {
	end := `{"error":{"code":"internal","details":[` + strings.TrimSuffix(strings.Repeat("{},", 8<<20), ",") + `]}}`
	sent := frame(2, len(end), end)
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, sent) })
	var err error
	got := allocated(func() { _, err = c.RunCode(t.Context(), bothy.CodeRequest{}) })
	if bothy.ErrorCode(err) != bothy.CodeGuest || got > 16<<20 {
		t.Errorf("the host allocated %d bytes for an end of %d: %v", got, len(end), err)
	}
}

// TestNamesOfContextsAreShort checks that what is repeated with each event is short.
func TestNamesOfContextsAreShort(t *testing.T) {
	started, err := proto.Marshal(&guestpb.RunResponse{Event: &guestpb.RunResponse_Started_{
		Started: &guestpb.RunResponse_Started{ContextId: strings.Repeat("c", 1<<20)}}})
	if err != nil {
		t.Fatal(err)
	}
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, frame(0, len(started), string(started)))
	})
	err = c.RunCodeStream(t.Context(), bothy.CodeRequest{}, func(bothy.CodeEvent) error { return nil })
	if bothy.ErrorCode(err) != bothy.CodeGuest {
		t.Errorf("got %v", err)
	}
}

// TestWarningsAreFew checks what an adoption gives to the log.
func TestWarningsAreFew(t *testing.T) {
	res, err := proto.Marshal(&guestpb.AdoptResponse{Warnings: strings.Split(strings.Repeat(strings.Repeat("w", 3000)+" ", 300), " ")})
	if err != nil {
		t.Fatal(err)
	}
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(res) })
	a, err := c.Adopt(t.Context(), client.Identity{Key: "key"})
	if err != nil || len(a.Warnings) != 16 || len(a.Warnings[0]) > 2100 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestACommandStartsOnce has a guest start the same command again and again: each start would
// send the input once more.
func TestACommandStartsOnce(t *testing.T) {
	start, err := proto.Marshal(&processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{
		Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}}})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	c := takenOver(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Start") {
			_, _ = io.WriteString(w, strings.Repeat(frame(0, len(start), string(start)), 50)+frame(2, 2, "{}"))
			return
		}
		<-over
	})
	defer close(over)
	before := runtime.NumGoroutine()
	_ = c.ExecStream(t.Context(), bothy.ExecRequest{Command: bothy.Command{Line: "cat"}, Stdin: strings.Repeat("x", 300_000), KeepRunning: true},
		func(bothy.ExecEvent) error { return nil })
	if more := runtime.NumGoroutine() - before; more > 25 {
		t.Errorf("%d goroutines send the input", more)
	}
}
