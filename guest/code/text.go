package code

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/command"
)

// partialMark returns the length of the longest beginning of the mark that b ends with.
func partialMark(b, mark []byte) int {
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, mark[:n]) {
			return n
		}
	}
	return 0
}

// textBundle converts every format to text: JSON strings and lists of strings
// become their content, anything else stays JSON.
func textBundle(data map[string]json.RawMessage) bothy.CodeOutput {
	out := make(bothy.CodeOutput, len(data))
	for mime, raw := range data {
		var text string
		var lines []string
		switch {
		case string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil:
			out[mime] = text
		case json.Unmarshal(raw, &lines) == nil && mime != "application/json":
			for _, l := range lines {
				out[mime] += l
			}
		default:
			out[mime] = string(raw)
		}
	}
	return out
}

// died describes how a kernel's process ended.
func died(p *command.Process) (Result, bool) {
	exit, ended := p.Exit()
	if !ended {
		return Result{}, false
	}
	value := "the process that runs the code ended"
	if exit.Signal != 0 {
		value += " by the signal " + exit.Signal.String()
	} else {
		value += " with the exit status " + strconv.Itoa(exit.Code)
	}
	return Result{
		OOMKilled: exit.OOMKilled, Hint: exit.Hint,
		Error: &bothy.CodeError{Name: "KernelDied", Value: value + "; its variables are gone"},
	}, true
}

var escapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]") })

// plain removes the colours from a text.
func plain(s string) string { return escapes().ReplaceAllString(s, "") }
