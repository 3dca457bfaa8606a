package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMark(t *testing.T) {
	a := &Agent{sentry: true}
	a.opt.Root = t.TempDir()
	path := filepath.Join(a.opt.Root, generation)
	var before os.FileInfo
	leave := func(text string, same bool) {
		t.Helper()
		if err := a.leaveMark(text); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Fatalf("the mark is %q, %v, want %q", b, err, text)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != 0o444 {
			t.Fatalf("the mark is %v, %v", info.Mode(), err)
		}
		if same && !os.SameFile(before, info) {
			t.Error("another file was made")
		}
		before = info
	}
	leave("one\n", false)
	leave("two\n", true)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, harm := range map[string]func(){
		"gone":      func() { must(os.Remove(path)) },
		"another":   func() { must(os.Rename(path, path+".old")); must(os.WriteFile(path, []byte("bad\n"), 0o644)) },
		"longer":    func() { must(os.Chmod(path, 0o644)); must(os.WriteFile(path, []byte("longer\n"), 0o644)) },
		"a link":    func() { must(os.Remove(path)); must(os.Symlink("/etc/passwd", path)) },
		"no folder": func() { must(os.RemoveAll(filepath.Dir(path))) },
	} {
		harm()
		leave(what[:2]+"3\n", false)
		leave(what[:2]+"4\n", true)
	}
	// Elsewhere a reader could see a partial file.
	a.sentry = false
	a.identity.mark.close()
	a.identity.mark = nil
	leave("six\n", false)
	if a.identity.mark != nil {
		t.Error("it stays open")
	}
}
