package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// maxAnswer limits an answer: the official clients take events of 1 MiB, of which some bytes are
// the protocol's.
const maxAnswer = 1<<20 - 16<<10

// cuttable is an output that can be shortened.
type cuttable interface {
	// cut shortens what is long to about so many bytes, and returns the content for the reader,
	// which says what is missing and how to read on.
	cut(most int) []mcp.Content
}

// fitted shortens an answer that is larger than clients take.
func fitted(content []mcp.Content, out any) ([]mcp.Content, error) {
	size := sizeOf(content, out)
	c, ok := out.(cuttable)
	for most := maxAnswer / 4; ok && size > maxAnswer && most > 0; most /= 2 {
		content = c.cut(most)
		size = sizeOf(content, out)
	}
	if size > maxAnswer {
		return nil, bothy.Errorf(bothy.CodeTooLarge, "the answer has %d bytes, more than the %d that a client takes", size, maxAnswer).
			WithHint("Ask for less at once.")
	}
	return content, nil
}

func sizeOf(content []mcp.Content, out any) int {
	if content == nil {
		content = jsonText(out)
	}
	b, err := json.Marshal(&mcp.CallToolResult{Content: content, StructuredContent: out})
	if err != nil {
		return 0 // the library reports it
	}
	return len(b)
}

// fitting is how many of the first items fit into an answer, where each is also quoted as text.
func fitting[T any](items []T) int {
	left := maxAnswer - 4<<10
	for i, x := range items {
		b, err := json.Marshal(x)
		if err != nil {
			return i
		}
		quoted, _ := json.Marshal(string(b))
		if left -= len(b) + len(quoted); left < 0 {
			return i
		}
	}
	return len(items)
}

const readInParts = "[The answer was shortened to fit into 1 MiB. For all of it, write the output to a file, and read that in parts: read_file with offset and limit.]"

func (o *shellOut) cut(most int) []mcp.Content {
	o.Stdout, _ = shorten(o.Stdout, most)
	o.Stderr, _ = shorten(o.Stderr, most)
	o.Truncated = true
	return append(text(shellText(*o)), text(readInParts)...)
}

func (o *codeOut) cut(most int) []mcp.Content {
	const each = 256 // bytes that a result has at least
	o.Truncated = true
	o.Stdout, _ = shorten(o.Stdout, most)
	o.Stderr, _ = shorten(o.Stderr, most)
	if o.Error != nil {
		e := *o.Error
		e.Value, _ = shorten(e.Value, most)
		e.Traceback, _ = shorten(e.Traceback, most)
		o.Error = &e
	}
	o.Results = o.Results[:min(len(o.Results), most/each)]
	for _, r := range o.Results {
		for mime := range r {
			r[mime], _ = shorten(r[mime], most/max(1, len(o.Results)))
		}
	}
	for size := 0; len(o.images) > 0; o.images = o.images[:len(o.images)-1] {
		size = 0
		for _, x := range o.images {
			size += base64.StdEncoding.EncodedLen(len(x.(*mcp.ImageContent).Data))
		}
		if size <= 2*most {
			break
		}
	}
	return append(o.content(), text(readInParts)...)
}

func (o *readOut) cut(most int) []mcp.Content {
	if o.Encoding == "base64" {
		o.Content = o.Content[:min(len(o.Content), most/4*4)]
		o.NextOffset = o.Offset + int64(base64.StdEncoding.DecodedLen(len(o.Content)))
	} else {
		n := min(len(o.Content), most)
		for n > 0 && n < len(o.Content) && !utf8.RuneStart(o.Content[n]) {
			n--
		}
		o.Content = o.Content[:n]
		o.NextOffset = o.Offset + int64(n)
	}
	o.Truncated = true
	return o.content()
}

func (o *listFilesOut) cut(int) []mcp.Content {
	o.Items = o.Items[:fitting(o.Items)]
	o.NextOffset, o.Truncated = o.offset+len(o.Items), true
	return nil
}

func (o *forkOut) cut(int) []mcp.Content {
	all := len(o.Items)
	o.Items = o.Items[:fitting(o.Items)]
	o.LeftOut += all - len(o.Items)
	return append(jsonText(o), text(fmt.Sprintf("[%d more copies run that are not in this answer. list_sandboxes shows them.]", o.LeftOut))...)
}

func (o *buildOut) cut(most int) []mcp.Content {
	for i, line := range o.Log {
		o.Log[i], _ = shorten(line, most/maxBuildLog)
	}
	if o.Build != nil {
		b := *o.Build
		b.Error, _ = shorten(b.Error, most)
		b.Warnings = b.Warnings[:fitting(b.Warnings)/2]
		o.Build = &b
	}
	return append(jsonText(o), text("[The answer was shortened to fit into 1 MiB. `bothy template logs` shows all of it.]")...)
}
