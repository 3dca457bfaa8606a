package mcp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

// maxEvent is what the official clients take by default.
const maxEvent = 1 << 20

// fits calls a tool, whose answer must be one that clients take.
func fits(t *testing.T, s *sdk.ClientSession, name string, args, out any) *sdk.CallToolResult {
	t.Helper()
	r := must(t, s, name, args, out)
	if b, err := json.Marshal(r); err != nil || len(b) >= maxEvent-1024 {
		t.Errorf("%s answers with %d bytes, %v", name, len(b), err)
	}
	return r
}

// Long answers say what is missing, and can be read to their end.
func TestEveryAnswerFits(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	long := strings.Repeat("\x01é\"", 120_000)

	var ran struct {
		Stdout    string
		Truncated bool
	}
	r := fits(t, s, "run_shell", m{"sandbox_id": sb.ID, "command": "echo " + long, "max_output_bytes": 4 << 20}, &ran)
	if !ran.Truncated || !strings.Contains(textOf(r), "bytes left out") || !strings.Contains(textOf(r), "read_file") {
		t.Errorf("truncated: %v, %q", ran.Truncated, textOf(r)[len(textOf(r))-200:])
	}
	var code struct{ Truncated bool }
	r = fits(t, s, "run_code", m{"sandbox_id": sb.ID, "code": long}, &code)
	if !code.Truncated || !strings.Contains(textOf(r), "read_file") {
		t.Errorf("truncated: %v", code.Truncated)
	}
	for encoding, content := range map[string]string{"utf-8": long, "base64": "\x00\xff" + long} {
		must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/f", "content": base64.StdEncoding.EncodeToString([]byte(content)), "encoding": "base64"}, &struct{}{})
		var all strings.Builder
		for offset := int64(0); ; {
			var read struct {
				Encoding, Content string
				Truncated         bool
				NextOffset        int64 `json:"next_offset"`
			}
			fits(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/f", "offset": offset, "limit": 4 << 20}, &read)
			part := []byte(read.Content)
			if read.Encoding == "base64" {
				part, _ = base64.StdEncoding.DecodeString(read.Content)
			}
			all.Write(part)
			if !read.Truncated || read.NextOffset <= offset {
				break
			}
			offset = read.NextOffset
		}
		if all.String() != content {
			t.Errorf("%s: read %d of %d bytes", encoding, all.Len(), len(content))
		}
		res, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "bothy://sandboxes/" + sb.ID + "/files/workspace/f"})
		b, _ := json.Marshal(res)
		if err != nil || len(b) >= maxEvent-1024 || len(res.Contents[0].Text)+len(res.Contents[0].Blob) < 100_000 {
			t.Errorf("the file as a resource has %d bytes, %v", len(b), err)
		}
	}
}

func TestListsContinueWhereTheyWereCut(t *testing.T) {
	world := apitest.New()
	s := open(t, world).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{"metadata": m{"note": strings.Repeat("\"", 30_000)}}, &sb)
	var forked struct {
		Items   []struct{ ID string }
		LeftOut int `json:"left_out"`
	}
	r := fits(t, s, "fork_sandbox", m{"sandbox_id": sb.ID, "count": 30, "metadata": m{"note": strings.Repeat("\"", 30_000)}}, &forked)
	if len(forked.Items) == 0 || len(forked.Items)+forked.LeftOut != 30 || forked.LeftOut > 0 != strings.Contains(textOf(r), "list_sandboxes") {
		t.Errorf("%d copies, and %d left out", len(forked.Items), forked.LeftOut)
	}
	for i := range 3 {
		world.MadeTemplate(fmt.Sprint("t", i)).Description = strings.Repeat("\"", 60_000)
	}
	for tool, want := range map[string]int{"list_sandboxes": 31, "list_templates": 0} {
		seen := map[string]bool{}
		pages, cursor := 0, ""
		for ; pages == 0 || cursor != "" && pages < 100; pages++ {
			var page struct {
				Items      []struct{ ID, Name string }
				NextCursor string `json:"next_cursor"`
			}
			args := m{}
			if cursor != "" {
				args["cursor"] = cursor
			}
			fits(t, s, tool, args, &page)
			for _, x := range page.Items {
				seen[x.ID+x.Name] = true
			}
			cursor = page.NextCursor
		}
		if pages < 2 || want > 0 && len(seen) != want || want == 0 && !(seen["t0"] && seen["t1"] && seen["t2"]) {
			t.Errorf("%s: %d pages of %d", tool, pages, len(seen))
		}
	}
	if got := textOf(call(t, s, "list_templates", m{"cursor": "none@x"})); !strings.Contains(got, "cursor") {
		t.Errorf("an unknown cursor: %s", got)
	}
	for i := range 8 {
		must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": fmt.Sprintf("/workspace/many/%04d%s", i, strings.Repeat("x", 60_000)), "content": ""}, &struct{}{})
	}
	names := map[string]bool{}
	for offset, more := 0, true; more; {
		var list struct {
			Items      []bothy.FileInfo
			Truncated  bool
			NextOffset int `json:"next_offset"`
		}
		fits(t, s, "list_files", m{"sandbox_id": sb.ID, "path": "/workspace/many", "offset": offset}, &list)
		for _, x := range list.Items {
			names[x.Name] = true
		}
		more = list.Truncated && list.NextOffset > offset
		offset = list.NextOffset
	}
	if len(names) != 8 {
		t.Errorf("%d files were listed", len(names))
	}
	if r := call(t, s, "fork_sandbox", m{"sandbox_id": sb.ID, "count": 0}); !r.IsError || !strings.Contains(textOf(r), "count is 0") {
		t.Errorf("no copies: %s", textOf(r))
	}
}

// A large picture is scaled, and its size said.
func TestALargePictureIsShown(t *testing.T) {
	s := open(t, apitest.New()).connect(nil)
	var sb struct{ ID string }
	must(t, s, "create_sandbox", m{}, &sb)
	random, noise := rand.New(rand.NewPCG(1, 2)), image.NewRGBA(image.Rect(0, 0, 500, 300))
	for i := range noise.Pix {
		noise.Pix[i] = byte(random.Uint32())
	}
	var b bytes.Buffer
	if err := png.Encode(&b, noise); err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) {
		must(t, s, "write_file", m{"sandbox_id": sb.ID, "path": "/workspace/p.png", "content": base64.StdEncoding.EncodeToString(content), "encoding": "base64"}, &struct{}{})
	}
	write(b.Bytes())
	var read struct {
		Encoding  string
		Truncated bool
	}
	r := fits(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/p.png"}, &read)
	shown, ok := r.Content[0].(*sdk.ImageContent)
	if !ok || len(shown.Data) > 256<<10 || read.Encoding != "image" || !strings.Contains(textOf(r), fmt.Sprintf("500 x 300 pixels and %d bytes", b.Len())) {
		t.Fatalf("%T, %+v, %.200s", r.Content[0], read, textOf(r))
	}
	if c, _, err := image.DecodeConfig(bytes.NewReader(shown.Data)); err != nil || c.Width*300 != c.Height*500 {
		t.Errorf("it is shown with %d x %d pixels, %v", c.Width, c.Height, err)
	}
	if must(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/p.png", "limit": 100}, &read); read.Encoding != "base64" || !read.Truncated {
		t.Errorf("its first bytes: %+v", read)
	}
	write(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 300<<10)...))
	if r := call(t, s, "read_file", m{"sandbox_id": sb.ID, "path": "/workspace/p.png"}); !r.IsError || !strings.Contains(textOf(r), "cannot be read") {
		t.Errorf("a broken picture: %s", textOf(r))
	}
}
