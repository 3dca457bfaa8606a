package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// marker creates a file of the host that no sandbox may see, at a path unlikely to exist in a sandbox.
func marker(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bothy-e2e-marker-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	path := filepath.Join(dir, "marker")
	if err == nil {
		err = os.WriteFile(path, []byte("the host's"), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return path
}

// The files API resolves paths and links inside the sandbox, with the user's permissions.
func TestPathsCannotEscape(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	host := marker(t)
	b.sh("", `cd /workspace && mkdir deep && ln -s / root && ln -s ../../../../../.. up && ln -s /proc/self/root selfroot &&
		ln -s /proc/1/root initroot && ln -s /proc/1/environ environ && ln -s /etc/shadow shadow && ln -s /proc/1/cwd/etc/shadow shadow1 &&
		ln -s loop loop && ln -s `+host+` marker`)
	climbs := []string{
		host, "../../../../../../.." + host, "/workspace/../../.." + host, "root" + host, "up" + host, "selfroot" + host,
		"initroot" + host, "/proc/self/root" + host, "/proc/1/root" + host, "/proc/1/cwd" + host, "marker",
		"/proc/self/cwd/../../../.." + host, "//" + host, "deep/../up" + host,
	}
	for _, user := range []string{"user", "root"} {
		for _, path := range climbs {
			got, err := b.tryRead(path, user)
			if code := bothy.ErrorCode(err); code != bothy.CodeFileNotFound && code != bothy.CodePermission {
				t.Errorf("%s reads %s: %q, %v", user, path, got, err)
			}
		}
	}
	// Files that users may not read.
	for path, user := range map[string]string{
		"shadow": "user", "shadow1": "user", "/etc/shadow": "user", "environ": "root", "/proc/1/environ": "root", "/proc/1/maps": "root",
		"/proc/1/mem": "root", "/proc/self/environ": "root", "/proc/self/mem": "root", "/proc/self/maps": "user", "/proc/thread-self/environ": "root",
		"/proc/self/fd/0": "root",
	} {
		if got, err := b.tryRead(path, user); err == nil {
			t.Errorf("%s reads %s: %.40q", user, path, got)
		}
	}
	wantError(t, second(b.tryRead("loop", "")), bothy.CodePathInvalid, "loop")
	for _, path := range []string{"a\x00b", "\xff\xfe", strings.Repeat("a", 300), strings.Repeat("a/", 3000)} {
		if code := bothy.ErrorCode(second(b.tryRead(path, ""))); code != bothy.CodePathInvalid {
			t.Errorf("reading %.20q: %s", path, code)
		}
	}
	if content, err := os.ReadFile(host); err != nil || string(content) != "the host's" {
		t.Errorf("the host's file contains %q, %v", content, err)
	}
	b.usable()
}

func second[T any](_ T, err error) error { return err }

// Writing through a link changes its target inside the sandbox, with the user's permissions.
func TestWritingThroughLinks(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	host := marker(t)
	b.sh("", `cd /workspace && ln -s `+host+` marker && ln -s /etc/passwd passwd && ln -s /proc/1/oom_score_adj score && ln -s /proc/self/mem mem &&
		ln -s /dev/null null && ln -s /.bothy/guest guest`)
	for _, path := range []string{"passwd", "score", "mem", "null", "guest", "/proc/sys/kernel/hostname", "/sys/x", "/proc/x"} {
		if _, err := b.upload(path, strings.NewReader("x")); err == nil {
			t.Errorf("the user could write to %s", path)
		}
	}
	_, err := b.upload("marker", strings.NewReader("x")) // creates a file with that path in the sandbox
	t.Log(err)
	if content, err := os.ReadFile(host); err != nil || string(content) != "the host's" {
		t.Errorf("the host's file contains %q, %v", content, err)
	}
	b.usable()
}

// Reading a special file neither blocks the server nor makes it read forever.
func TestReadingSpecialFiles(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{})
	b.sh("root", "cd /workspace && mkfifo fifo && chmod 666 fifo && mkdir folder && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' && chmod 666 socket")
	for _, user := range []string{"user", "root"} {
		for _, path := range []string{"fifo", "socket", "/dev/zero", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/full", "/dev/stdin"} {
			if got, err := b.tryRead(path, user); bothy.ErrorCode(err) != bothy.CodeInvalid && bothy.ErrorCode(err) != bothy.CodePermission {
				t.Errorf("%s reads %s: %d bytes, %v", user, path, len(got), err)
			}
			if path != "/dev/stdin" { // belongs to the guest
				if _, err := b.upload(path, strings.NewReader("x")); err == nil {
					t.Errorf("the user replaced %s with a file", path)
				}
			}
		}
	}
	var archive bytes.Buffer
	r, err := b.s.Files.ReadArchive(b.ctx, b.id, "/workspace", "", bothy.ArchiveOptions{})
	if err == nil {
		_, err = io.Copy(&archive, r)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		t.Errorf("packing a folder with a pipe and a socket: %v", err)
	}
	if _, err := b.s.Files.ReadArchive(b.ctx, b.id, "fifo", "", bothy.ArchiveOptions{}); err != nil {
		t.Logf("packing a pipe: %v", err)
	}
	b.usable()
}

// Reading a file ends even if a process keeps appending to it.
func TestReadingAGrowingFile(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{DiskMB: 512})
	grow := b.try(bothy.ExecRequest{
		Command:    bothy.Command{Line: "while :; do head -c 100000 /dev/zero >>/workspace/grows; [ $(stat -c %s /workspace/grows) -lt 300000000 ] || : >/workspace/grows; done"},
		Background: true,
	})
	b.sh("", "until [ -s /workspace/grows ]; do sleep 0.1; done")
	for range 5 {
		if _, err := b.tryRead("/workspace/grows", ""); err != nil && bothy.ErrorCode(err) == bothy.CodeInternal {
			t.Errorf("reading a growing file: %v", err)
		}
		if _, err := b.s.Files.Stat(b.ctx, b.id, "/workspace/grows", ""); err != nil {
			t.Errorf("stat of a growing file: %v", err)
		}
	}
	if err := b.s.Exec.Signal(b.ctx, b.id, grow.PID, 9); err != nil {
		t.Error(err)
	}
	b.usable()
}

func TestLargeFolders(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 1024})
	b.sh("", `mkdir /workspace/large /workspace/larger && python3 -c '
import os
for i in range(20000):
    os.mknod("/workspace/large/file-%d" % i)
for i in range(60000):
    os.mknod("/workspace/larger/file-%d" % i)
'`)
	list, err := b.s.Files.List(b.ctx, b.id, "/workspace/large", "", 1)
	if err != nil || len(list) != 20000 {
		t.Errorf("listed %d entries, %v", len(list), err)
	}
	_, err = b.s.Files.List(b.ctx, b.id, "/workspace/larger", "", 1)
	wantError(t, err, bothy.CodeTooLarge, "/workspace/larger")
	if err := b.s.Files.Remove(b.ctx, b.id, "/workspace/larger", ""); err != nil {
		t.Error(err)
	}
	b.usable()
}

func TestDeepPathsAndOddNames(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	b.sh("", `mkdir /workspace/names && cd /workspace/names && python3 -c '
import os
for name in (b"new\nline", b"\xff\xfe", b"tab\t", b"quote\x27\"", b" ", b"-rf", b"*", b"a\x1b[31m", "ünï".encode(), b"x" * 255, b"..."):
    open(name, "w").close()
os.makedirs(b"\xf0/\xf1")
open(b"\xf0/\xf1/\xf2", "w").close()
os.makedirs("/workspace/deep")
os.chdir("/workspace/deep")
for _ in range(1000):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
open("bottom", "w").close()
'`)
	list, err := b.s.Files.List(b.ctx, b.id, "/workspace/names", "", 3)
	if err != nil || len(list) != 14 {
		t.Errorf("listed %d entries, %v", len(list), err)
	}
	for _, name := range []string{"new\nline", "tab\t", `quote'"`, " ", "-rf", "*", "a\x1b[31m", "ünï", strings.Repeat("x", 255), "..."} {
		if !slices.ContainsFunc(list, func(i bothy.FileInfo) bool { return i.Name == name }) {
			t.Errorf("%q is not listed", name)
		}
		path := "/workspace/names/" + name
		if _, err := b.upload(path, strings.NewReader(name)); err != nil {
			t.Errorf("write %q: %v", name, err)
		} else if got := b.read(path); got != name {
			t.Errorf("%q contains %q", name, got)
		}
	}
	if _, err := b.s.Files.List(b.ctx, b.id, "/workspace/deep", "", 64); err != nil {
		t.Errorf("listing 64 levels: %v", err)
	}
	archive, err := b.pack("/workspace")
	if err != nil {
		t.Logf("packing a thousand levels: %v", err)
	} else if len(archive) < 14 {
		t.Errorf("packed only %d entries", len(archive))
	}
	if err := b.s.Files.Remove(b.ctx, b.id, "/workspace/deep", ""); err != nil {
		t.Errorf("removing a thousand levels: %v", err)
	}
	b.usable()
}

// pack reads a folder as an archive and returns the names of its entries.
func (b *box) pack(path string) ([]string, error) {
	r, err := b.s.Files.ReadArchive(b.ctx, b.id, path, "", bothy.ArchiveOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var names []string
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		names = append(names, h.Name)
	}
}

// entry is one entry of a hostile archive.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4777, Size: int64(len(content))}, content}
}

func link(kind byte, name, to string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}, ""}
}

func TestArchivesCannotEscape(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	b.sh("root", "echo kept >/etc/kept && chmod 600 /etc/kept && mkdir /outside && chmod 777 /outside && echo kept >/outside/kept && chmod 666 /outside/kept")
	for name, entries := range map[string][]entry{
		"parent":              {file("../../outside/kept", "x")},
		"absolute":            {file("/outside/kept", "x")},
		"link":                {link(tar.TypeSymlink, "l", "/outside/kept"), file("l/x", "x")},
		"linked folder":       {link(tar.TypeSymlink, "l", "/outside"), file("l/kept", "x")},
		"link up":             {link(tar.TypeSymlink, "l", "../../outside"), file("l/kept", "x")},
		"hard link":           {link(tar.TypeLink, "h", "/outside/kept"), file("h", "x")},
		"hard link up":        {link(tar.TypeLink, "h", "../../outside/kept")},
		"hard link by link":   {link(tar.TypeSymlink, "l", "/outside"), link(tar.TypeLink, "h", "l/kept"), file("h", "x")},
		"folder over link":    {link(tar.TypeSymlink, "l", "/outside"), {tar.Header{Typeflag: tar.TypeDir, Name: "l", Mode: 0o700}, ""}},
		"device":              {{tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 1}, ""}},
		"pipe":                {{tar.Header{Typeflag: tar.TypeFifo, Name: "p"}, ""}},
		"link to the shadow":  {link(tar.TypeSymlink, "s", "/etc/kept"), file("s", "x")},
		"dots":                {file("a/../../../outside/kept", "x")},
		"nothing but parents": {file("..", "x")},
	} {
		err := b.unpack("/workspace/in/"+name, func(w *tar.Writer) error {
			for _, e := range entries {
				if err := w.WriteHeader(&e.Header); err != nil {
					return err
				}
				if _, err := io.WriteString(w, e.content); err != nil {
					return err
				}
			}
			return nil
		})
		want := bothy.CodePathInvalid
		switch name {
		case "device", "pipe":
			want = bothy.CodeUnsupported
		case "link to the shadow":
			want = "" // the file replaces the link
		}
		if code := bothy.ErrorCode(err); code != want {
			t.Errorf("%s: got %v, want code %q", name, err, want)
		}
		if got := b.sh("root", "cat /etc/kept /outside/kept; ls -A /outside; stat -c %a /outside; find /workspace -type b -o -type c -o -type p -o -perm -4000 -uid 0"); got != "kept\nkept\nkept\n777" {
			t.Errorf("%s: the file outside contains %q", name, got)
		}
	}
	for _, broken := range []string{"", "not a tar", strings.Repeat("x", 2000)} {
		ctx := b.ctx
		err := b.s.Files.WriteArchive(ctx, b.id, "/workspace/broken", "", strings.NewReader(broken))
		if broken != "" && bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("unpacking %.20q: %v", broken, err)
		}
	}
	b.usable()
}

// Ways out of a chroot lead to the sandbox's own files only.
func TestChrootsCannotEscape(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	host := marker(t)
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "roots.py", host).refused(t)
	})
	if content, err := os.ReadFile(host); err != nil || string(content) != "the host's" {
		t.Errorf("the host's file contains %q, %v", content, err)
	}
	// The engine's own files. The last one exists while any machine is being saved, as the pool also does.
	own := []string{"config.json", "panic.log", "paused"}
	if err := filepath.WalkDir(filepath.Join(shared.Home, "machines"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !slices.Contains(own, d.Name()) {
			t.Errorf("a file in a machine's folder: %s", path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	b.usable()
}
