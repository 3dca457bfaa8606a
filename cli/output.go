package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is a terminal that tables are drawn for: as wide as it is, and with colours if it may have them.
type screen struct {
	io.Writer
	width int
	color bool
}

// screen is the standard output as tables need it: pipes get everything, and no colours.
func (a *app) screen() io.Writer {
	f, ok := a.stdout.(*os.File)
	if !ok || !isTerminal(f) {
		return a.stdout
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return screen{Writer: f, width: width, color: a.color()}
}

// table prints aligned columns.
func table(w io.Writer, header []string, rows [][]string) {
	s, _ := w.(screen)
	lines := append([][]string{header}, rows...)
	widths := make([]int, len(header))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if s.width > 0 {
		narrow(widths, header, s.width)
	}
	for n, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			text := shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap)
			if i == len(line)-1 {
				pad = ""
			}
			if s.color {
				text = paint(text, n == 0, header[i], cell)
			}
			b.WriteString(text + pad)
		}
		fmt.Fprintln(w, b.String())
	}
}

const (
	gap = 2
	// leastWidth is that of a column that is cut short.
	leastWidth = 8
)

// narrow cuts the widest columns until the table fits. Ids and states stay whole, for they are copied.
func narrow(widths []int, header []string, room int) {
	total := (len(widths) - 1) * gap
	for _, n := range widths {
		total += n
	}
	for ; total > room; total-- {
		widest := -1
		for i, n := range widths {
			if whole := header[i] == "ID" || header[i] == "STATE"; !whole && n > max(leastWidth, len(header[i])) && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// stateColors are those of the cells below STATE.
var stateColors = map[string]string{
	"running": green, "up": green, "ready": green, "starting": yellow, "resuming": yellow, "pausing": yellow, "stopping": yellow, "building": yellow, "draining": yellow, "cordoned": yellow,
	"paused": blue, "failed": red, "dead": red, "stopped": faint,
}

// The colours of tables.
const (
	bold, faint, red, green, yellow, blue = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m"
	plain                                 = "\x1b[0m"
)

func paint(text string, isHeader bool, column, cell string) string {
	color := ""
	switch {
	case isHeader:
		color = bold
	case column == "STATE":
		color = stateColors[cell]
	case cell == "-":
		color = faint
	}
	if color == "" {
		return text
	}
	return color + text + plain
}

// fields prints one object, a line for each field that is not empty.
func fields(w io.Writer, pairs ...string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			fmt.Fprintf(tw, "%s\t%s\n", pair[0], pair[1])
		}
	}
	_ = tw.Flush()
}

// span prints a duration in its largest unit, as in 5s, 12m, 3h, 4d.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// age is how long ago t was.
func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(time.Since(t))
}

// ageOf is age for a time that may be missing.
func ageOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return age(*t)
}

// until is how long it takes to t.
func until(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return span(time.Until(*t))
}

// stamp prints a time that may be missing.
func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// size prints bytes in powers of 1024.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, u := range units {
		f /= 1024
		if f < 1024 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + fmt.Sprintf(" %ciB", u)
		}
	}
	return fmt.Sprintf("%.1f EiB", f)
}

// pairs prints a map as KEY=VALUE, sorted.
func pairs(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// orDash marks a cell that is empty on purpose.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
