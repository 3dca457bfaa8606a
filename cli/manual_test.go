package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManualHasAPageForEachCommand(t *testing.T) {
	dir := t.TempDir()
	root := newRoot(newApp(os.Stdin, io.Discard, io.Discard))
	root.SetArgs([]string{"manual", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "bothy-template-build.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{".TH \"BOTHY-TEMPLATE-BUILD\" 1", ".SH SYNOPSIS\n.B bothy template build", ".SH OPTIONS\n.TP\n.B ", "bothy\\-template(1)"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bothy-manual.1")); err == nil {
		t.Error("a hidden command has a page")
	}
}

func TestManualQuotesText(t *testing.T) {
	if got, want := roff(".a-b\n'c\\d"), "\\&.a\\-b\n\\&'c\\ed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
