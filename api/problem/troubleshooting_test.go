package problem

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// TestEveryCodeIsExplained compares the page for readers with the codes that the API answers.
func TestEveryCodeIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\|").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]+" "+row[2]] = true
	}
	for code, status := range Statuses {
		row := fmt.Sprintf("%s %d", code, status)
		if !rows[row] {
			t.Errorf("docs/troubleshooting.md has no row for %s", row)
		}
		delete(rows, row)
	}
	for row := range rows {
		t.Errorf("docs/troubleshooting.md explains %s, which the API does not answer", row)
	}
}
