package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints aligned columns.
func table(w io.Writer, header []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
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
