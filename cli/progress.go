package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
)

// progress shows how far long work is: one line that is redrawn on a terminal, and plain lines
// elsewhere.
type progress struct {
	w     io.Writer
	live  bool
	drawn bool
	next  time.Time
	last  string
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, live: isTerminal(w)}
}

// step shows a step of the work, with its message and how much is done.
func (p *progress) step(step, message string, percent float64) {
	if p.live {
		p.draw(bar(percent) + " " + join(step, message))
		return
	}
	if line := join(step, message); line != p.last {
		p.last = line
		fmt.Fprintln(p.w, line)
	}
}

// bytes shows how much of a file has been moved. A total of zero or less means unknown. It draws
// at most ten times a second, and only on a terminal.
func (p *progress) bytes(name string, n, total int64) {
	if !p.live || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(100 * time.Millisecond)
	if total <= 0 {
		p.draw(fmt.Sprintf("%s  %s", name, size(n)))
		return
	}
	p.draw(fmt.Sprintf("%s %s  %s of %s", bar(100*float64(n)/float64(total)), name, size(n), size(total)))
}

// done clears the line.
func (p *progress) done() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *progress) draw(line string) {
	if runes := []rune(line); len(runes) >= p.width() {
		line = string(runes[:p.width()-1])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.drawn = true
}

func (p *progress) width() int {
	if f, ok := p.w.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 10 {
			return w
		}
	}
	return 80
}

// join makes one printable line of a step and its message.
func join(step, message string) string {
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	line := step + ": " + message
	if step == "" || message == "" {
		line = step + message
	}
	return strings.Map(printable, line)
}

// printable drops what would move the cursor: the text may come from inside a sandbox.
func printable(r rune) rune {
	if r == '\t' {
		return ' '
	}
	if !unicode.IsPrint(r) {
		return -1
	}
	return r
}

// bar draws percent as 20 cells.
func bar(percent float64) string {
	full := min(max(int(percent/5), 0), 20)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", 20-full), min(max(percent, 0), 100))
}
