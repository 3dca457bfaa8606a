package cli

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// entry is one member of a tar from a hostile sandbox.
type entry struct {
	name, content, link string
	kind                byte
	mode                int64
}

func hostileTar(t *testing.T, entries ...entry) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.content)), Mode: e.mode, ModTime: time.Unix(1e9, 0)}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// unpackInto unpacks into a folder next to a file that must not change.
func unpackInto(t *testing.T, entries ...entry) (dest string, refused []string, err error) {
	t.Helper()
	outer := t.TempDir()
	victim := filepath.Join(outer, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	dest = filepath.Join(outer, "dest")
	if err := os.Mkdir(dest, 0o755); err != nil {
		t.Fatal(err)
	}
	refused, err = unpack(hostileTar(t, entries...), dest)
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("a file outside of the destination became %q", b)
	}
	left, _ := os.ReadDir(outer)
	if len(left) != 2 {
		t.Errorf("something was written outside of the destination: %v", left)
	}
	return dest, refused, err
}

// A link from one copy must not lead outside because of files in the next one.
func TestUnpackLeavesNoLinkThatAnotherCopyRedirects(t *testing.T) {
	for name, copies := range map[string][][]entry{
		"over a folder that is not there yet": {
			{{name: "tricky", kind: tar.TypeSymlink, link: "nodir/../../victim"}},
			{{name: "nodir/", kind: tar.TypeDir, mode: 0o755}},
		},
		"over a folder that becomes a link": {
			{{name: "d/", kind: tar.TypeDir, mode: 0o755}, {name: "tricky", kind: tar.TypeSymlink, link: "d/../victim"}, {name: "victim", content: "mine"}},
			{{name: "d", kind: tar.TypeSymlink, link: "."}},
		},
		"over a link that is not there yet": {
			{{name: "tricky", kind: tar.TypeSymlink, link: "d/../victim"}},
			{{name: "d", kind: tar.TypeSymlink, link: "."}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dest, refused, err := unpackInto(t, copies[0]...)
			if err != nil || len(refused) != 1 || !strings.HasPrefix(refused[0], "tricky: it is a link to ") {
				t.Errorf("refused %q, %v", refused, err)
			}
			if _, err := unpack(hostileTar(t, copies[1]...), dest); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dest, "tricky")); err == nil {
				t.Errorf("tricky leads to %q", b)
			}
		})
	}
}

func TestUnpackKeepsModesTimesAndLinks(t *testing.T) {
	dest, refused, err := unpackInto(t,
		entry{name: "./", kind: tar.TypeDir, mode: 0o755},
		entry{name: "./bin/", kind: tar.TypeDir, mode: 0o750},
		entry{name: "./bin/tool", content: "#!/bin/sh\n", mode: 0o4755},
		entry{name: "./latest", kind: tar.TypeSymlink, link: "bin/tool"},
		entry{name: "./later", kind: tar.TypeSymlink, link: "not/yet/there"},
		entry{name: "./bin/up", kind: tar.TypeSymlink, link: "../bin/./tool"},
		entry{name: "./hard", kind: tar.TypeLink, link: "./bin/tool"},
	)
	if err != nil || len(refused) != 0 {
		t.Fatal(err, refused)
	}
	for name, want := range map[string]os.FileMode{"bin": 0o750 | os.ModeDir, "bin/tool": 0o755, "hard": 0o755} {
		info, err := os.Lstat(filepath.Join(dest, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || info.ModTime().Unix() != 1e9 {
			t.Errorf("%s has mode %v and time %v", name, info.Mode(), info.ModTime())
		}
	}
	if target, _ := os.Readlink(filepath.Join(dest, "latest")); target != "bin/tool" {
		t.Errorf("the link leads to %q", target)
	}
	if target, _ := os.Readlink(filepath.Join(dest, "later")); target != "not/yet/there" {
		t.Errorf("a link to what is not there must stay, but it leads to %q", target)
	}
}

func TestUnpackRefusesPathsThatEscape(t *testing.T) {
	attacks := map[string][]entry{
		"name with dots":      {{name: "../victim", content: "x"}},
		"absolute name":       {{name: "/tmp/bothy-attack", content: "x"}},
		"absolute link":       {{name: "a", kind: tar.TypeSymlink, link: "/etc/passwd"}},
		"link with dots":      {{name: "a", kind: tar.TypeSymlink, link: "../victim"}},
		"dangling link out":   {{name: "a", kind: tar.TypeSymlink, link: "../nothing"}},
		"hard link with dots": {{name: "a", kind: tar.TypeLink, link: "../victim"}},
		"device":              {{name: "a", kind: tar.TypeChar}},
		"fifo":                {{name: "a", kind: tar.TypeFifo}},
	}
	for attack, entries := range attacks {
		t.Run(attack, func(t *testing.T) {
			dest, refused, err := unpackInto(t, entries...)
			if err != nil || len(refused) != 1 {
				t.Errorf("refused %q, error %v", refused, err)
			}
			if left, _ := os.ReadDir(dest); len(left) != 0 {
				t.Errorf("it was written all the same: %v", left)
			}
		})
	}
}

func TestUnpackFollowsNoLinkOfTheTar(t *testing.T) {
	// The link comes first, then a file below its name: either the file replaces it or unpacking fails,
	// but nothing is written through the link.
	dest, refused, _ := unpackInto(t,
		entry{name: "out", kind: tar.TypeSymlink, link: ".."},
		entry{name: "out/victim", content: "owned"},
	)
	if _, err := os.Readlink(filepath.Join(dest, "out")); err == nil {
		t.Errorf("the link was made; refused %q", refused)
	}
}

func TestUnpackRefusesALinkThatLeavesByAnother(t *testing.T) {
	// Read as text, a/b/up/../x stays inside; followed, it leaves.
	dest, refused, err := unpackInto(t,
		entry{name: "a/b/", kind: tar.TypeDir, mode: 0o755},
		entry{name: "a/b/up", kind: tar.TypeSymlink, link: "../.."},
		entry{name: "x", kind: tar.TypeSymlink, link: "a/b/up/../victim"},
	)
	if err != nil || len(refused) != 1 || !strings.HasPrefix(refused[0], "x: ") {
		t.Errorf("refused %q, error %v", refused, err)
	}
	if _, err := os.Lstat(filepath.Join(dest, "x")); err == nil {
		t.Error("the link is there")
	}
}

func TestUnpackThroughALinkThatWasThereBefore(t *testing.T) {
	outer := t.TempDir()
	dest := filepath.Join(outer, "dest")
	if err := os.Mkdir(dest, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outer, filepath.Join(dest, "trap")); err != nil {
		t.Fatal(err)
	}
	_, err := unpack(hostileTar(t, entry{name: "trap/file", content: "x"}), dest)
	if err == nil {
		t.Error("writing through a link out of the destination must fail")
	}
	if _, err := os.Stat(filepath.Join(outer, "file")); err == nil {
		t.Error("the file was written outside")
	}
}

func TestUnpackOfADamagedArchive(t *testing.T) {
	_, err := unpack(strings.NewReader("this is not a tar"), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
}
