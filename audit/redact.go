package audit

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxCommand and maxObject limit how much of a command and of an object is kept, in bytes.
	maxCommand = 4096
	maxObject  = 1024
	// roughly is how much of them is queued: enough that the stored text does not end with half
	// a key.
	roughly = 4 * maxCommand
)

// keys matches what looks like a key: Bothy's own, well-known forms, and whatever follows a word
// that announces one.
var keys = regexp.MustCompile(strings.Join([]string{
	`\b(?:bothy|e2b)_[0-9a-f]{16,}`,
	`\bsk-[A-Za-z0-9_-]{16,}`,
	`\bgh[pousr]_[A-Za-z0-9]{20,}`,
	`\bgithub_pat_[A-Za-z0-9_]{20,}`,
	`\bxox[a-z]-[A-Za-z0-9-]{10,}`,
	`\bAKIA[0-9A-Z]{16}`,
	`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`,
	`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`,
}, "|"))

var announced = regexp.MustCompile(`(?i)((?:bearer|basic)\s+|(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?)([^\s"'$][^\s"']{3,})|(://[^\s/:@]+:)([^\s/@]+)(@)`)

// redact replaces what looks like a key.
func redact(s string) string {
	if s == "" {
		return s
	}
	s = keys.ReplaceAllString(s, "[redacted]")
	return announced.ReplaceAllString(s, "${1}${3}[redacted]${5}")
}

// shorten makes s valid text of at most so many bytes.
func shorten(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	const mark = "…"
	n := most - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
