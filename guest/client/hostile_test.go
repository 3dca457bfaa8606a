package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// takenOver is a client of a compromised guest, which answers with whatever the handler writes.
func takenOver(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	c := client.New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	}, "key")
	t.Cleanup(c.CloseIdle)
	return c
}

// forever writes until the client hangs up.
func forever(w http.ResponseWriter, r *http.Request) {
	b := bytes.Repeat([]byte("x"), 64<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

func frame(flags byte, claim int, body string) string {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(claim))
	return string(b) + body
}

func TestACompromisedGuestCannotFloodTheHost(t *testing.T) {
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
	}
	status := func(code int, s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, s)
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"endless":             forever,
		"endless error":       func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); forever(w, r) },
		"empty":               text(""),
		"garbage":             text("\xff\xfe garbage, and more of it"),
		"claims 4 GB":         text(frame(0, 1<<32-1, "x")),
		"claims 3 MB":         text(frame(0, 3<<20, "x")),
		"end without a start": text(frame(2, 2, "{}")),
		"end that is no JSON": text(frame(2, 3, "{{{")),
		"huge header":         func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
		"hangs up":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"error of no kind":    status(400, "{}"),
		"error that is a lie": status(409, `{"code":{"a":1},"message":[]}`),
		"redirect":            status(302, "elsewhere"),
	} {
		t.Run(name, func(t *testing.T) {
			c := takenOver(t, answer)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for call, f := range map[string]func() error{
				"Exec":   func() error { _, err := c.Exec(ctx, args("true")); return err },
				"Output": func() error { return c.Output(ctx, 1, 0, func(bothy.ExecEvent) error { return nil }) },
				"Write": func() error {
					_, err := c.Write(ctx, "x", strings.NewReader("x"), bothy.WriteOptions{})
					return err
				},
				"Read":    func() error { _, _, err := c.Read(ctx, "x", ""); return err },
				"RunCode": func() error { _, err := c.RunCode(ctx, bothy.CodeRequest{Code: "1"}); return err },
				"Terminal": func() error {
					term, err := c.Terminal(ctx, bothy.TerminalRequest{})
					if err == nil {
						_, err = io.Copy(io.Discard, term)
					}
					return err
				},
			} {
				err := f()
				var e *bothy.Error
				if !errors.As(err, &e) {
					t.Errorf("%s: %v has no error code", call, err)
				}
			}
		})
	}
	// A listing is read up to its limit, which is lowered here so that the test is fast.
	t.Cleanup(client.BoundListings(4 << 20))
	c := takenOver(t, forever)
	if _, err := c.List(t.Context(), "/", "", 1); bothy.ErrorCode(err) != bothy.CodeGuest {
		t.Errorf("got %v", err)
	}
}

// The host keeps a bounded part of a command's output, however much there is.
func TestOutputIsBoundedOnTheHost(t *testing.T) {
	event, err := proto.Marshal(&processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{
		Data: &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: bytes.Repeat([]byte("x"), 1<<20)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	end, _ := proto.Marshal(&processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{}}}})
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 200 {
			io.WriteString(w, frame(0, len(event), string(event)))
		}
		io.WriteString(w, frame(0, len(end), string(end))+frame(2, 2, "{}"))
	})
	res, err := c.Exec(t.Context(), args("true"))
	if err != nil || !res.Truncated || len(res.Stdout) != bothy.DefaultExecOutputBytes {
		t.Fatalf("%d bytes, %v", len(res.Stdout), err)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 100<<20 {
		t.Errorf("%d MB are in use", m.HeapAlloc>>20)
	}
}

// The text of an error comes from the guest and is cut to a readable length.
func TestErrorsOfAGuestAreCut(t *testing.T) {
	c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"code":400,"bothy_code":"invalid_argument","message":"`+strings.Repeat("m", 30000)+`","hint":"`+strings.Repeat("h", 30000)+`"}`)
	})
	_, err := c.Stat(t.Context(), "x", "")
	if e := bothy.AsError(err); e.Code != bothy.CodeInvalid || len(e.Detail) > 2100 || len(e.Hint) > 2100 {
		t.Errorf("%d bytes of detail, %d of hint, %s", len(e.Detail), len(e.Hint), e.Code)
	}
}

// Codes that the server itself returns are not taken from a guest: a sandbox could otherwise end
// its owner's session or fill the server's log.
func TestAGuestCannotForgeErrorsOfTheServer(t *testing.T) {
	for code, want := range map[bothy.Code]bothy.Code{
		bothy.CodeUnauthenticated: bothy.CodeGuest, bothy.CodeTokenExpired: bothy.CodeGuest, bothy.CodeForbidden: bothy.CodeGuest,
		bothy.CodeInternal: bothy.CodeGuest, bothy.CodeRateLimited: bothy.CodeGuest, bothy.CodeQuota: bothy.CodeGuest,
		"made_up": bothy.CodeGuest, bothy.CodeFileNotFound: bothy.CodeFileNotFound, bothy.CodePermission: bothy.CodePermission,
	} {
		info, err := proto.Marshal(&guestpb.ErrorInfo{Code: string(code), Hint: "hint"})
		if err != nil {
			t.Fatal(err)
		}
		detail := base64.RawStdEncoding.EncodeToString(info)
		for name, body := range map[string]string{
			"Connect": fmt.Sprintf(`{"code":"internal","message":"said so","details":[{"type":"bothy.guest.v1.ErrorInfo","value":%q}]}`, detail),
			"plain":   fmt.Sprintf(`{"code":500,"message":"said so","bothy_code":%q,"hint":"hint"}`, code),
		} {
			c := takenOver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
				io.WriteString(w, body)
			})
			_, err := c.Stat(t.Context(), "/x", "")
			if bothy.ErrorCode(err) != want {
				t.Errorf("%s, %s: %v, want the code %s", name, code, err, want)
			}
		}
	}
}
