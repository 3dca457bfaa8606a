package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/runes"
)

// Limits of what is read from a file at once.
const (
	defaultRead = 256 << 10
	maxRead     = 4 << 20
)

type writeIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Path      string `json:"path" jsonschema:"The file's path; relative paths start at /workspace. Folders are created as needed"`
	Content   string `json:"content" jsonschema:"The file's content"`
	Encoding  string `json:"encoding,omitempty" jsonschema:"utf-8 (the default), or base64 for bytes"`
	Mode      string `json:"mode,omitempty" jsonschema:"Permissions in octal, such as 0755; by default those of the existing file, or 0644"`
}

type readIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Path      string `json:"path" jsonschema:"The file's path; relative paths start at /workspace"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"The first byte to read; 0 by default"`
	Limit     int    `json:"limit,omitempty" jsonschema:"Read at most this many bytes; 262144 by default, 4194304 at most"`
}

type readOut struct {
	Path      string `json:"path"`
	Size      int64  `json:"size" jsonschema:"The whole file's size in bytes"`
	Offset    int64  `json:"offset"`
	Encoding  string `json:"encoding" jsonschema:"utf-8, base64, or image if the content is one"`
	Content   string `json:"content"`
	Truncated bool   `json:"truncated" jsonschema:"The file continues after what was read"`
	// NextOffset is the offset of the next part.
	NextOffset int64 `json:"next_offset,omitempty" jsonschema:"If the file continues: the offset to read on"`
}

// content is the text of a file as it is, and how to read on.
func (o *readOut) content() []mcp.Content {
	content := text(o.Content)
	if o.Encoding == "base64" {
		content = jsonText(o)
	}
	if o.Truncated {
		content = append(content, text(fmt.Sprintf("[The file has %d bytes. Read on with offset %d.]", o.Size, o.NextOffset))...)
	}
	return content
}

type listFilesIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Path      string `json:"path,omitempty" jsonschema:"The folder's path; /workspace by default"`
	Depth     int    `json:"depth,omitempty" jsonschema:"How many levels deep, 1 to 32; 1 by default"`
	Offset    int    `json:"offset,omitempty" jsonschema:"How many entries to skip: next_offset of the previous answer"`
}

// maxListed bounds the entries of one answer.
const maxListed = 1000

type listFilesOut struct {
	Items      []bothy.FileInfo `json:"items"`
	Truncated  bool             `json:"truncated" jsonschema:"There are more entries than these"`
	NextOffset int              `json:"next_offset,omitempty" jsonschema:"If there are more: the offset to list on"`

	offset int
}

func (t tools) addFiles() {
	add(t, destroys, "write_file", "Write a file",
		"Writes a whole file in a sandbox. The content of an existing file with that name is replaced, in place.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in writeIn) ([]mcp.Content, *bothy.FileInfo, error) {
			content, mode, err := in.decode()
			if err != nil {
				return nil, nil, err
			}
			i, err := t.Files.Write(ctx, in.SandboxID, in.Path, bytes.NewReader(content), bothy.WriteOptions{Mode: mode})
			return nil, i, err
		})
	add(t, reads, "read_file", "Read a file",
		"Reads a file in a sandbox, or a part of it. Text is returned as is, images as images, scaled if they are large, other bytes in base64. Changes nothing.",
		t.readFile)
	add(t, reads, "list_files", "List files",
		"Lists a folder in a sandbox. Changes nothing.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in listFilesIn) ([]mcp.Content, listFilesOut, error) {
			depth, err := bounded("depth", in.Depth, 1, 32)
			if err != nil {
				return nil, listFilesOut{}, err
			}
			if in.Offset < 0 {
				return nil, listFilesOut{}, bothy.Errorf(bothy.CodeInvalid, "offset is %d", in.Offset).WithHint("Give how many entries to skip, from 0.")
			}
			items, err := t.Files.List(ctx, in.SandboxID, firstNonEmpty(in.Path, bothy.DefaultCwd), "", depth)
			items = items[min(in.Offset, len(items)):]
			out := listFilesOut{Items: append([]bothy.FileInfo{}, items[:min(len(items), maxListed)]...), offset: in.Offset}
			if out.Truncated = len(items) > maxListed; out.Truncated {
				out.NextOffset = in.Offset + maxListed
			}
			return nil, out, err
		})
}

func (in writeIn) decode() (content []byte, mode uint32, err error) {
	switch strings.ToLower(in.Encoding) {
	case "", "utf-8", "utf8":
		content = []byte(in.Content)
	case "base64":
		if content, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, 0, bothy.Errorf(bothy.CodeInvalid, "content is not base64: %v", err).WithHint("Use the standard alphabet with padding, or encoding utf-8.")
		}
	default:
		return nil, 0, bothy.Errorf(bothy.CodeInvalid, "encoding %q is not known", in.Encoding).WithHint("Use utf-8 or base64.")
	}
	if in.Mode != "" {
		n, err := strconv.ParseUint(in.Mode, 8, 32)
		if err != nil || n > 0o7777 || n == 0 {
			return nil, 0, bothy.Errorf(bothy.CodeInvalid, "mode %q is not a set of permissions", in.Mode).WithHint("Give them in octal, such as 0644 or 0755.")
		}
		mode = uint32(n)
	}
	return content, mode, nil
}

func (t tools) readFile(ctx context.Context, _ *mcp.CallToolRequest, in readIn) ([]mcp.Content, readOut, error) {
	limit, err := bounded("limit", in.Limit, defaultRead, maxRead)
	if err != nil {
		return nil, readOut{}, err
	}
	if in.Offset < 0 {
		return nil, readOut{}, bothy.Errorf(bothy.CodeInvalid, "offset is %d", in.Offset).WithHint("Give the first byte to read, from 0.")
	}
	r, info, err := t.Files.Read(ctx, in.SandboxID, in.Path, "")
	if err != nil {
		return nil, readOut{}, err
	}
	defer r.Close()
	out := readOut{Path: info.Path, Size: info.Size, Offset: in.Offset}
	if _, err := io.CopyN(io.Discard, r, in.Offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = bothy.Errorf(bothy.CodeInvalid, "offset %d is after the end of the file, which has %d bytes", in.Offset, info.Size).
				WithHint("Read from an earlier byte.")
		}
		return nil, readOut{}, err
	}
	// One more byte shows whether the file continues: files in /proc have no size.
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, readOut{}, err
	}
	mime, whole := http.DetectContentType(b), len(b) <= limit
	if in.Offset == 0 && imageTypes[mime] && (whole || in.Limit == 0) {
		return readPicture(ctx, mime, b, r, out)
	}
	if out.Truncated = !whole; out.Truncated {
		b = b[:limit]
	}
	if isText(&b, out.Truncated) {
		out.Encoding, out.Content = "utf-8", string(b)
	} else {
		out.Encoding, out.Content = "base64", base64.StdEncoding.EncodeToString(b)
	}
	if out.Truncated {
		out.NextOffset = in.Offset + int64(len(b))
	}
	return out.content(), out, nil
}

// readPicture reads the rest of a picture. Its bytes can be read by giving a limit.
func readPicture(ctx context.Context, mime string, b []byte, rest io.Reader, out readOut) ([]mcp.Content, readOut, error) {
	more, err := io.ReadAll(io.LimitReader(rest, maxOriginal+1-int64(len(b))))
	if err != nil {
		return nil, readOut{}, err
	}
	out.Encoding = "image"
	shown, note, err := picture(ctx, mime, append(b, more...))
	if err != nil {
		return nil, readOut{}, err
	}
	content := []mcp.Content{shown}
	if note != "" {
		content = append(content, text(note)...)
	}
	return content, out, nil
}

var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// isText reports whether b is UTF-8. A character that is cut off at the end is left for the next
// read.
func isText(b *[]byte, cut bool) bool {
	s := *b
	if bytes.IndexByte(s, 0) >= 0 {
		return false
	}
	if n := runes.Partial(s); cut && n < len(s) {
		s = s[:len(s)-n]
	}
	if !utf8.Valid(s) {
		return false
	}
	*b = s
	return true
}
