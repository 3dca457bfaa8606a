package files

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

var stranger = &account.User{Name: "stranger", UID: 4321, GID: 4321, Groups: []uint32{4321}}

func testFS() *FS { return New(account.New("/etc/passwd", "/etc/group")) }

func wantCode(t *testing.T, err error, code bothy.Code) {
	t.Helper()
	if bothy.ErrorCode(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestResolve(t *testing.T) {
	for path, want := range map[string]string{
		"a": "/workspace/a", "./a/../b": "/workspace/b", "../x": "/x", "../../../x": "/x",
		"/": "/", "/a//b/": "/a/b", ".": "/workspace", "/..": "/", "ä/ö": "/workspace/ä/ö",
	} {
		if got, err := Resolve("/workspace", path); err != nil || got != want {
			t.Errorf("Resolve(%q) = %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "a\x00b", "\xff", strings.Repeat("x/", 3000)} {
		_, err := Resolve("/workspace", path)
		wantCode(t, err, bothy.CodePathInvalid)
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "/", "..", "a/../../b", "\x00", "\xff/x", "//x//", "~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := Resolve("/workspace", path)
		if err != nil {
			wantCode(t, err, bothy.CodePathInvalid)
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || strings.ContainsRune(got, 0) {
			t.Errorf("Resolve(%q) = %q", path, got)
		}
	})
}

func TestWriteAndRead(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	path := filepath.Join(dir, "a/b/file")
	at := time.Unix(1_600_000_000, 0)
	info, err := f.Write(nil, path, strings.NewReader("hello"), WriteOptions{Mode: 0o4750, ModifiedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	if info.Size != 5 || Bits(info.Mode) != 0o4750 || !info.ModifiedAt.Equal(at) || info.Name != "file" || info.Kind != bothy.FileRegular {
		t.Errorf("info %+v", info)
	}
	file, info, err := f.Open(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if b, _ := io.ReadAll(file); string(b) != "hello" || info.Size != 5 {
		t.Errorf("read %q, %+v", b, info)
	}
	// Writing again keeps the existing mode.
	if info, err = f.Write(nil, path, strings.NewReader("x"), WriteOptions{}); err != nil || Bits(info.Mode) != 0o4750 {
		t.Errorf("mode after rewriting: %v, %v", info.Mode, err)
	}
	if info, err = f.Write(nil, filepath.Join(dir, "new"), strings.NewReader("x"), WriteOptions{}); err != nil || Bits(info.Mode) != 0o644 {
		t.Errorf("default mode: %v, %v", info.Mode, err)
	}
}

func TestWriteThatFailsLeavesTheOldFile(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "old")
	_, err := f.Write(nil, path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(syscall.ENOSPC)), WriteOptions{})
	wantCode(t, err, bothy.CodeDiskFull)
	sum := sha256.Sum256([]byte("something else"))
	_, err = f.Write(nil, path, strings.NewReader("new"), WriteOptions{SHA256: sum[:]})
	wantCode(t, err, bothy.CodeInvalid)
	if got := content(t, path); got != "old" {
		t.Errorf("the file holds %q", got)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("something was left behind: %v", names)
	}
	sum = sha256.Sum256([]byte("new"))
	if _, err = f.Write(nil, path, strings.NewReader("new"), WriteOptions{SHA256: sum[:]}); err != nil || content(t, path) != "new" {
		t.Errorf("with the right sum: %v", err)
	}
}

func TestWriteFollowsLinks(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	for link, target := range map[string]string{"link": "target", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Write(nil, filepath.Join(dir, "link"), strings.NewReader("x"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "target")); got != "x" {
		t.Errorf("target holds %q", got)
	}
	_, err := f.Write(nil, filepath.Join(dir, "loop"), strings.NewReader("x"), WriteOptions{})
	wantCode(t, err, bothy.CodePathInvalid)
}

// No special file may make the agent hang.
func TestOddFiles(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	_, _, err := f.Open(nil, pipe)
	wantCode(t, err, bothy.CodeInvalid)
	_, err = f.Write(nil, pipe, strings.NewReader("x"), WriteOptions{})
	wantCode(t, err, bothy.CodeInvalid)
	_, _, err = f.Open(nil, "/dev/zero")
	wantCode(t, err, bothy.CodeInvalid)
	_, _, err = f.Open(nil, dir)
	wantCode(t, err, bothy.CodeIsADirectory)
	_, err = f.Write(nil, dir, strings.NewReader("x"), WriteOptions{})
	wantCode(t, err, bothy.CodeIsADirectory)
	_, _, err = f.Open(nil, "/proc/self/environ")
	wantCode(t, err, bothy.CodePermission)
	_, _, err = f.Open(nil, dir+"/none")
	wantCode(t, err, bothy.CodeFileNotFound)
	_, _, err = f.Open(nil, pipe+"/x")
	wantCode(t, err, bothy.CodeNotADirectory)
	_, err = f.Write(nil, dir+"/"+strings.Repeat("x", 300), strings.NewReader("x"), WriteOptions{})
	wantCode(t, err, bothy.CodePathInvalid)
}

func TestAccessIsTheUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	f := testFS()
	dir, err := os.MkdirTemp("", "rights") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	secret, closed := filepath.Join(dir, "secret"), filepath.Join(dir, "closed")
	write(t, secret, "x")
	if err := errors.Join(os.Chmod(secret, 0o600), os.Mkdir(closed, 0o755), os.WriteFile(closed+"/file", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Open(stranger, secret)
	wantCode(t, err, bothy.CodePermission)
	_, err = f.Write(stranger, closed+"/new", strings.NewReader("x"), WriteOptions{})
	wantCode(t, err, bothy.CodePermission)
	wantCode(t, f.Remove(stranger, closed, true), bothy.CodePermission)
	_, err = f.Move(stranger, closed+"/file", dir+"/mine")
	wantCode(t, err, bothy.CodePermission)
	_, err = f.Mkdir(stranger, closed+"/dir", true)
	wantCode(t, err, bothy.CodePermission)
	wantCode(t, f.WriteArchive(stranger, closed, archive(t, tar.Header{Name: "x", Typeflag: tar.TypeReg})), bothy.CodePermission)
	info, err := f.Write(stranger, dir+"/own/file", strings.NewReader("x"), WriteOptions{})
	if err != nil || info.UID != 4321 || info.GID != 4321 {
		t.Errorf("written as %d:%d, %v", info.UID, info.GID, err)
	}
	if info, err = f.Stat(nil, dir+"/own"); err != nil || info.UID != 4321 {
		t.Errorf("the folder belongs to %d, %v", info.UID, err)
	}
	if os.Geteuid() != 0 {
		t.Error("root's rights were not taken back")
	}
	file, _, err := f.Open(nil, secret)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
}

// Credentials belong to a thread: one user's must not be visible to concurrent requests of another.
func TestRightsDoNotLeakBetweenRequests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	f := testFS()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if err := f.as(stranger, func() error {
					if syscall.Geteuid() != 4321 {
						return errors.New("not the stranger")
					}
					_, err := os.ReadFile("/etc/shadow")
					if !errors.Is(err, fs.ErrPermission) {
						return errors.New("the stranger reads /etc/shadow")
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 200 {
				if syscall.Geteuid() != 0 {
					t.Error("not root")
				}
			}
		})
	}
	wg.Wait()
}

func TestListStatMkdirMoveRemove(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	if info, err := f.Mkdir(nil, dir+"/a/b/c", false); err != nil || info.Kind != bothy.FileDirectory {
		t.Fatal(info, err)
	}
	_, err := f.Mkdir(nil, dir+"/a", false)
	wantCode(t, err, bothy.CodeFileExists)
	if _, err := f.Mkdir(nil, dir+"/a", true); err != nil {
		t.Error(err)
	}
	write(t, dir+"/a/file", "12345")
	if err := os.Symlink("file", dir+"/a/link"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/a/bad\xff\nname", "")
	list, err := f.List(nil, dir+"/a", 1)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	if got, want := strings.Join(names, " "), `b bad\xff\nname file link`; got != want {
		t.Errorf("names %q, want %q", got, want)
	}
	if !list[1].Escaped || list[2].Size != 5 || list[3].LinkTarget != "file" || list[3].Kind != bothy.FileSymlink || list[3].Target != bothy.FileRegular {
		t.Errorf("list %+v", list)
	}
	if list, err = f.List(nil, dir, 3); err != nil || len(list) != 6 || list[2].Path != dir+"/a/b/c" {
		t.Errorf("deep list %+v, %v", list, err)
	}
	_, err = f.List(nil, dir+"/a/file", 1)
	wantCode(t, err, bothy.CodeNotADirectory)

	if info, err := f.Move(nil, dir+"/a/file", dir+"/x/y"); err != nil || info.Path != dir+"/x/y" || info.Size != 5 {
		t.Errorf("moved %+v, %v", info, err)
	}
	_, err = f.Move(nil, dir+"/none", dir+"/z")
	wantCode(t, err, bothy.CodeFileNotFound)
	_, err = f.Move(nil, dir+"/a", dir+"/a/b/inside")
	wantCode(t, err, bothy.CodePathInvalid)
	if err := f.Remove(nil, dir+"/a", true); err != nil {
		t.Error(err)
	}
	wantCode(t, f.Remove(nil, dir+"/a", true), bothy.CodeFileNotFound)
	if err := f.Remove(nil, dir+"/a", false); err != nil {
		t.Error(err)
	}
	wantCode(t, f.Remove(nil, "/", false), bothy.CodePathInvalid)
	if list, err := f.List(nil, "/", 1); err != nil || len(list) == 0 || strings.HasPrefix(list[0].Path, "//") {
		t.Errorf("root: %v, %v", list, err)
	}
}

func TestMoveBetweenFileSystems(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "move")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(shm)
	f, dir := testFS(), t.TempDir()
	var a, b syscall.Stat_t
	if syscall.Stat(shm, &a) != nil || syscall.Stat(dir, &b) != nil || a.Dev == b.Dev {
		t.Skip("there is only one file system")
	}
	if err := errors.Join(os.MkdirAll(dir+"/tree/sub", 0o750), os.WriteFile(dir+"/tree/sub/file", []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Move(nil, dir+"/tree", shm+"/new"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, shm+"/new/sub/file"); got != "x" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Lstat(dir + "/tree"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old place: %v", err)
	}
	if names, _ := os.ReadDir(shm); len(names) != 1 {
		t.Errorf("something was left behind: %v", names)
	}
}

// archive packs entries; files hold their own names.
func archive(t *testing.T, entries ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, h.Name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestArchiveRoundTrip(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	at := time.Unix(1_500_000_000, 0)
	src := dir + "/src"
	if err := errors.Join(os.MkdirAll(src+"/sub/empty", 0o755), os.WriteFile(src+"/sub/run", []byte("#!"), 0o755),
		os.Symlink("sub/run", src+"/link"), os.Chmod(src+"/sub", 0o711),
		os.Chtimes(src+"/sub/run", at, at), os.Chtimes(src+"/sub", at, at)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.ReadArchive(nil, src, &b, bothy.ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over existing files
		if err := f.WriteArchive(nil, dir+"/dst", bytes.NewReader(b.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]fs.FileMode{"sub": 0o711, "sub/run": 0o755, "sub/empty": 0o755} {
		st, err := os.Stat(dir + "/dst/" + path)
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st, err)
		} else if path != "sub/empty" && !st.ModTime().Equal(at) {
			t.Errorf("%s changed at %v", path, st.ModTime())
		}
	}
	if target, _ := os.Readlink(dir + "/dst/link"); target != "sub/run" {
		t.Errorf("link leads to %q", target)
	}
	var one bytes.Buffer
	if err := f.ReadArchive(nil, src+"/sub/run", &one, bothy.ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(&one).Next(); err != nil || h.Name != "run" || h.Size != 2 {
		t.Errorf("archive of a file: %+v, %v", h, err)
	}
	wantCode(t, f.ReadArchive(nil, dir+"/none", &one, bothy.ArchiveOptions{}), bothy.CodeFileNotFound)
}

func TestArchivesCannotEscape(t *testing.T) {
	f := testFS()
	file, link := byte(tar.TypeReg), byte(tar.TypeSymlink)
	for name, entries := range map[string][]tar.Header{
		"dots":             {{Name: "../out", Typeflag: file}},
		"inner dots":       {{Name: "a/../../out", Typeflag: file}},
		"absolute":         {{Name: "/tmp/out", Typeflag: file}},
		"through a link":   {{Name: "l", Linkname: "..", Typeflag: link}, {Name: "l/out", Typeflag: file}},
		"absolute link":    {{Name: "l", Linkname: "/tmp", Typeflag: link}, {Name: "l/out", Typeflag: file}},
		"link to a link":   {{Name: "a", Linkname: "b", Typeflag: link}, {Name: "b", Linkname: "../..", Typeflag: link}, {Name: "a/out", Typeflag: file}},
		"hard link":        {{Name: "h", Linkname: "../victim", Typeflag: tar.TypeLink}},
		"hard by a link":   {{Name: "l", Linkname: "..", Typeflag: link}, {Name: "h", Linkname: "l/victim", Typeflag: tar.TypeLink}},
		"folder by a link": {{Name: "l", Linkname: "..", Typeflag: link}, {Name: "l/out/", Typeflag: tar.TypeDir}},
		"parent itself":    {{Name: "..", Typeflag: tar.TypeDir}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/victim", "precious")
			wantCode(t, f.WriteArchive(nil, dir+"/in", archive(t, entries...)), bothy.CodePathInvalid)
			names, _ := os.ReadDir(dir)
			if len(names) != 2 || content(t, dir+"/victim") != "precious" {
				t.Errorf("outside is now %v", names)
			}
		})
	}
}

// A file unpacked over a link replaces the link, not its target.
func TestArchiveReplacesLinks(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	write(t, dir+"/victim", "precious")
	in := archive(t, tar.Header{Name: "l", Linkname: dir + "/victim", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l", Typeflag: tar.TypeReg})
	if err := f.WriteArchive(nil, dir+"/in", in); err != nil {
		t.Fatal(err)
	}
	if content(t, dir+"/victim") != "precious" || content(t, dir+"/in/l") != "l" {
		t.Error("the link was followed")
	}
}

func TestDamagedArchives(t *testing.T) {
	f, dir := testFS(), t.TempDir()
	wantCode(t, f.WriteArchive(nil, dir, strings.NewReader("this is no tar, and long enough to be looked at"+strings.Repeat("x", 1000))), bothy.CodeInvalid)
	whole, _ := io.ReadAll(archive(t, tar.Header{Name: strings.Repeat("n", 90), Typeflag: tar.TypeReg}))
	wantCode(t, f.WriteArchive(nil, dir, bytes.NewReader(whole[:520])), bothy.CodeInvalid)
	wantCode(t, f.WriteArchive(nil, dir, archive(t, tar.Header{Name: "dev", Typeflag: tar.TypeChar})), bothy.CodeUnsupported)
	wantCode(t, f.WriteArchive(nil, dir, io.MultiReader(bytes.NewReader(whole[:520]), iotest.ErrReader(syscall.ENOSPC))), bothy.CodeDiskFull)
}
