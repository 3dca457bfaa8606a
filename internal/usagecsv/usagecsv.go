// Package usagecsv writes a report of usage as a table for spreadsheets.
package usagecsv

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Write writes the items of a report as a table with a header: the fields that they are grouped
// by, in that order, and the meters.
func Write(w io.Writer, r *bothy.UsageReport) error {
	c := csv.NewWriter(w)
	_ = c.Write(append(slices.Clone(r.GroupBy), "vcpu_seconds", "cpu_seconds", "memory_mb_seconds", "egress_bytes", "ingress_bytes",
		"snapshot_mb_seconds", "template_mb_seconds", "cost", "currency"))
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	for _, i := range r.Items {
		row := make([]string, 0, len(r.GroupBy)+9)
		for _, by := range r.GroupBy {
			row = append(row, plainCell(i.Group(by)))
		}
		_ = c.Write(append(row, number(i.VCPUSeconds), number(i.CPUSeconds), number(i.MemoryMBSeconds),
			strconv.FormatInt(i.EgressBytes, 10), strconv.FormatInt(i.IngressBytes, 10),
			number(i.SnapshotMBSeconds), number(i.TemplateMBSeconds), number(i.Cost), r.Currency))
	}
	c.Flush()
	return c.Error()
}

// plainCell keeps a spreadsheet from interpreting a user's label as a formula.
func plainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
