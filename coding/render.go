package coding

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Render writes an agent's output for people to read. Format is the Output of an Agent.
func Render(format string, w io.Writer) io.WriteCloser {
	if format == "claude" {
		return &claude{w: w}
	}
	return plain{w}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// claude reads the JSON lines of Claude Code.
type claude struct {
	w    io.Writer
	rest []byte
}

// maxLine limits how much of an endless line is kept.
const maxLine = 16 << 20

func (c *claude) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for {
		line, rest, ok := strings.Cut(string(c.rest), "\n")
		if !ok {
			break
		}
		c.rest = []byte(rest)
		if err := c.line(line); err != nil {
			return 0, err
		}
	}
	if len(c.rest) > maxLine {
		c.rest = nil
	}
	return len(p), nil
}

// Close writes a last line without a line break.
func (c *claude) Close() error {
	if len(c.rest) == 0 {
		return nil
	}
	return c.line(string(c.rest))
}

func (c *claude) line(line string) error {
	var said struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		IsError bool   `json:"is_error"`
		Result  string `json:"result"`
		Message struct {
			Content []struct {
				Type  string          `json:"type"`
				Text  string          `json:"text"`
				Name  string          `json:"name"`
				Input json.RawMessage `json:"input"`
			} `json:"content"`
		} `json:"message"`
	}
	if strings.TrimSpace(line) == "" {
		return nil
	}
	if json.Unmarshal([]byte(line), &said) != nil {
		return c.print(line)
	}
	switch {
	case said.Type == "result" && (said.IsError || said.Subtype != "success"):
		return c.print("failed: " + said.Subtype + " " + said.Result)
	case said.Type != "assistant":
		return nil
	}
	for _, block := range said.Message.Content {
		var err error
		switch block.Type {
		case "text":
			err = c.print(block.Text)
		case "tool_use":
			err = c.print("→ " + block.Name + " " + brief(block.Input))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// print writes lines without control characters, which would move a terminal's cursor.
func (c *claude) print(text string) error {
	clean := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
	_, err := fmt.Fprintln(c.w, strings.TrimRight(clean, "\n"))
	return err
}

// brief describes a tool call in one line.
func brief(input json.RawMessage) string {
	var fields map[string]any
	_ = json.Unmarshal(input, &fields)
	for _, name := range []string{"command", "file_path", "path", "pattern", "url", "query", "description"} {
		if text, ok := fields[name].(string); ok {
			first, _, more := strings.Cut(text, "\n")
			if more {
				first += " …"
			}
			return first
		}
	}
	return ""
}
