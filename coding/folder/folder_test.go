package folder

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// box stands for a sandbox: its files are those below a folder of this host.
type box struct {
	dir string
	// reads counts the files that were fetched.
	reads int
	// few is how many entries one listing may have, or 0.
	few int
	// also is listed, too, although it is not there.
	also []bothy.FileInfo
}

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }

func (b *box) Read(_ context.Context, _, name, _ string) (io.ReadCloser, *bothy.FileInfo, error) {
	b.reads++
	f, err := os.Open(b.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no %s", name)
	}
	return f, nil, err
}

func (b *box) List(_ context.Context, _, name, _ string, depth int) ([]bothy.FileInfo, error) {
	list := b.also
	err := filepath.WalkDir(b.path(name), func(full string, d fs.DirEntry, err error) error {
		if err != nil || full == b.path(name) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.path(name), full)
		if strings.Count(rel, "/") >= depth {
			return nil
		}
		inside, _ := filepath.Rel(b.dir, full)
		e := bothy.FileInfo{Path: "/" + inside, Type: bothy.FileRegular, Size: info.Size(), Mode: fmt.Sprintf("%04o", info.Mode().Perm()), ModifiedAt: info.ModTime()}
		switch info.Mode().Type() {
		case fs.ModeDir:
			e.Type = bothy.FileDirectory
		case fs.ModeSymlink:
			e.Type = bothy.FileSymlink
			e.LinkTarget, _ = os.Readlink(full)
		}
		list = append(list, e)
		return nil
	})
	if b.few > 0 && len(list) > b.few {
		return nil, bothy.Errorf(bothy.CodeTooLarge, "too many")
	}
	return list, err
}

func (b *box) Remove(_ context.Context, _, name, _ string) error {
	return os.RemoveAll(b.path(name))
}

func (b *box) WriteArchive(_ context.Context, _, dir, _ string, r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		to := b.path(filepath.Join(dir, h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, to)
		default:
			var content []byte
			if content, err = io.ReadAll(tr); err == nil {
				// gVisor keeps microseconds, and rounds.
				at := h.ModTime.Add(time.Microsecond - 1).Truncate(time.Microsecond)
				err = errors.Join(os.WriteFile(to, content, 0o600), os.Chmod(to, fs.FileMode(h.Mode)), os.Chtimes(to, at, at))
			}
		}
		if err != nil {
			return err
		}
	}
}

// sides is a folder on this host and in a box.
type sides struct {
	*testing.T
	*Folder
	box   *box
	here  string
	notes []string
	clock time.Time
}

func newSides(t *testing.T, o Options) *sides {
	t.Helper()
	s := &sides{T: t, box: &box{dir: t.TempDir()}, here: t.TempDir(), clock: time.Now().Truncate(time.Microsecond).Add(173)}
	t.Setenv("HOME", t.TempDir())
	if err := os.Mkdir(s.box.path("w"), 0o755); err != nil {
		t.Fatal(err)
	}
	o.Local, o.Inside, o.Sandbox = s.here, "/w", "sbx1"
	o.Note = func(format string, args ...any) { s.notes = append(s.notes, fmt.Sprintf(format, args...)) }
	var err error
	if s.Folder, err = New(s.box, o); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sides) sync() Report {
	s.Helper()
	r, err := s.Sync(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// put writes a file with a time of change that is later than all before.
func (s *sides) put(root, name, content string) {
	s.Helper()
	full := filepath.Join(root, name)
	s.clock = s.clock.Add(time.Second)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644), os.Chtimes(full, s.clock, s.clock)); err != nil {
		s.Fatal(err)
	}
}

func (s *sides) local(name, content string)  { s.Helper(); s.put(s.here, name, content) }
func (s *sides) inside(name, content string) { s.Helper(); s.put(s.box.path("w"), name, content) }
func (s *sides) remove(root, name string) {
	s.Helper()
	if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
		s.Fatal(err)
	}
}

// has checks what both sides hold, by name; "-" is nothing and "/" a folder.
func (s *sides) has(name, here, there string) {
	s.Helper()
	for root, want := range map[string]string{s.here: here, s.box.path("w"): there} {
		got := "-"
		info, err := os.Lstat(filepath.Join(root, name))
		switch {
		case err != nil:
		case info.IsDir():
			got = "/"
		case info.Mode()&fs.ModeSymlink != 0:
			got, _ = os.Readlink(filepath.Join(root, name))
			got = "→" + got
		default:
			b, _ := os.ReadFile(filepath.Join(root, name))
			got = string(b)
		}
		if got != want {
			s.Errorf("%s in %s is %q, want %q", name, root, got, want)
		}
	}
}

func (s *sides) noted(part string) {
	s.Helper()
	if !strings.Contains(strings.Join(s.notes, "\n"), part) {
		s.Errorf("%q was not noted: %q", part, s.notes)
	}
}

func TestBothSidesBecomeTheSame(t *testing.T) {
	for what, few := range map[string]int{"one listing": 0, "a listing of each folder": 4} {
		t.Run(what, func(t *testing.T) {
			s := newSides(t, Options{})
			s.box.few = few
			s.local("a.txt", "a")
			s.local("über uns/ein Bild.png", "\x89PNG\x00\xff")
			s.local("sub/deep/er/x", "x")
			if err := os.Symlink("a.txt", filepath.Join(s.here, "link")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(s.here, "a.txt"), 0o755); err != nil {
				t.Fatal(err)
			}
			if r := s.sync(); r.In != 8 || r.Out != 0 {
				t.Errorf("%+v", r)
			}
			s.has("über uns/ein Bild.png", "\x89PNG\x00\xff", "\x89PNG\x00\xff")
			s.has("link", "→a.txt", "→a.txt")
			if r := s.sync(); r.In+r.Out != 0 || s.box.reads != 0 {
				t.Errorf("again, with nothing changed: %+v, and %d files were fetched", r, s.box.reads)
			}

			s.inside("a.txt", "changed inside")
			s.inside("new/ünd/b.bin", "\x00\x01")
			s.local("sub/deep/er/x", "changed here")
			s.remove(s.box.path("w"), "über uns")
			s.remove(s.here, "link")
			if r := s.sync(); len(r.Conflicts) != 0 {
				t.Errorf("%+v", r)
			}
			s.has("a.txt", "changed inside", "changed inside")
			s.has("new/ünd/b.bin", "\x00\x01", "\x00\x01")
			s.has("sub/deep/er/x", "changed here", "changed here")
			s.has("über uns", "-", "-")
			s.has("link", "-", "-")
			if info, err := os.Stat(filepath.Join(s.here, "a.txt")); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("a.txt: %v, %v", info.Mode(), err)
			}
			if r := s.sync(); r.In+r.Out != 0 || len(s.notes) != 0 {
				t.Errorf("again: %+v, %q", r, s.notes)
			}
		})
	}
}

func TestWhatChangedOnBothSidesIsKept(t *testing.T) {
	s := newSides(t, Options{})
	for _, name := range []string{"both", "gone here", "gone there", "same", "dir/in"} {
		s.local(name, "first")
	}
	s.sync()
	s.local("both", "here")
	s.inside("both", "there")
	s.remove(s.here, "gone here")
	s.inside("gone here", "there")
	s.remove(s.box.path("w"), "gone there")
	s.local("gone there", "here")
	s.local("same", "second")
	s.inside("same", "second")
	s.remove(s.here, "dir")
	s.inside("dir/new", "there")
	r := s.sync()
	if len(r.Conflicts) != 1 || r.Conflicts[0] != "both" {
		t.Errorf("%+v", r)
	}
	s.has("both", "here", "here")
	s.has("both.from-sandbox", "there", "-")
	s.noted("both.from-sandbox")
	s.has("gone here", "there", "there")
	s.has("gone there", "here", "here")
	s.has("same", "second", "second")
	s.has("dir/in", "-", "-")
	s.has("dir/new", "there", "there")

	// The agent continues from what the user has.
	s.inside("both", "here, and more")
	if r := s.sync(); len(r.Conflicts) != 0 {
		t.Errorf("%+v", r)
	}
	s.has("both", "here, and more", "here, and more")
	s.has("both.from-sandbox", "there", "there")
}

func TestAnotherKindInItsPlace(t *testing.T) {
	s := newSides(t, Options{})
	s.local("becomes a folder", "file")
	s.local("becomes a file/x", "x")
	s.local("mine becomes a folder", "file")
	s.sync()
	s.remove(s.box.path("w"), "becomes a folder")
	s.inside("becomes a folder/y", "y")
	s.remove(s.box.path("w"), "becomes a file")
	s.inside("becomes a file", "file")
	s.remove(s.here, "mine becomes a folder")
	s.local("mine becomes a folder/z", "z")
	s.sync()
	s.has("becomes a folder/y", "y", "y")
	s.has("becomes a file", "file", "file")
	s.has("mine becomes a folder/z", "z", "z")
}

// What comes out of a sandbox can be written by somebody who means harm.
func TestNothingLeadsOutOfTheFolder(t *testing.T) {
	s := newSides(t, Options{})
	outside := t.TempDir()
	s.put(outside, "victim", "untouched")
	if err := os.Symlink(outside, filepath.Join(s.here, "mine")); err != nil {
		t.Fatal(err)
	}
	s.local("plain/x", "x")
	s.sync()
	s.has("mine", "→"+outside, "→"+outside)

	links := map[string]string{"absolute": "/etc/passwd", "up": "../up", "around": "plain/../../up", "deep/up": "../../up", "later": "plain/../x"}
	for name, target := range links {
		full := filepath.Join(s.box.path("w"), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.Symlink(target, full)); err != nil {
			t.Fatal(err)
		}
	}
	// The link that leads out is a folder there.
	s.remove(s.box.path("w"), "mine")
	s.inside("mine/victim", "overwritten")
	for _, name := range []string{"../up", "/w/../../up", "/etc/cron.d/job", "/w/plain/../../up"} {
		s.box.also = append(s.box.also, bothy.FileInfo{Path: name, Type: bothy.FileRegular, Size: 1, Mode: "0644"})
	}
	s.sync()
	for name := range links {
		if _, err := os.Lstat(filepath.Join(s.here, name)); err == nil {
			t.Errorf("the link %s was made here", name)
		}
		s.noted("the link " + name)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(b) != "untouched" {
		t.Errorf("outside there is %q, %v", b, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(s.here), "up")); err == nil {
		t.Error("a file was written above the folder")
	}
}

func TestWhatGitWouldRunStaysInside(t *testing.T) {
	s := newSides(t, Options{})
	s.local(".git/HEAD", "ref: refs/heads/main")
	s.local(".git/config", "[core]")
	s.local(".git/hooks/pre-commit.sample", "sample")
	s.sync()
	s.has(".git/config", "[core]", "[core]")

	refused := []string{
		".git/config", ".git/hooks/post-checkout", ".git/info/attributes", ".git/modules/m/config", ".git/rebase-merge/git-rebase-todo",
		".git/objects/info/alternates", ".GIT/config", "sub/.git/config", "sub/.git", ".git/index.lock",
	}
	for _, name := range refused {
		if name == "sub/.git" {
			continue
		}
		s.inside(name, "evil")
	}
	s.inside("bare/HEAD", "ref: refs/heads/main")
	s.inside("bare/objects/x", "")
	s.inside("bare/refs/x", "")
	s.inside("plain/HEAD", "fine")
	s.inside(".git/HEAD", "ref: refs/heads/other")
	s.inside(".git/refs/heads/other", "0123")
	s.inside(".git/objects/01/23", "object")
	s.remove(s.box.path("w"), ".git/hooks/pre-commit.sample")
	s.sync()
	for _, name := range append(refused, "bare/HEAD") {
		if b, err := os.ReadFile(filepath.Join(s.here, name)); err == nil && string(b) != "[core]" {
			t.Errorf("%s was written here: %q", name, b)
		}
	}
	s.has(".git/HEAD", "ref: refs/heads/other", "ref: refs/heads/other")
	s.has(".git/refs/heads/other", "0123", "0123")
	s.has(".git/objects/01/23", "object", "object")
	s.has(".git/hooks/pre-commit.sample", "sample", "-")
	s.has("plain/HEAD", "fine", "fine")
	s.noted(".git/config")

	// A folder that is none yet does not become a repository elsewhere.
	s = newSides(t, Options{})
	s.inside(".git", "gitdir: ./evil")
	s.sync()
	s.has(".git", "-", "gitdir: ./evil")
}

func TestWhatIsIgnoredStaysWhereItIs(t *testing.T) {
	s := newSides(t, Options{Exclude: []string{"*.iso"}})
	// The rules are read when the folder is opened.
	s.local(".gitignore", "# comment\n.env\n/build/\n*.log\n!kept.log\n")
	s.local("sub/.gitignore", "only-here\n")
	f, err := New(s.box, s.o)
	if err != nil {
		t.Fatal(err)
	}
	s.Folder = f
	carried := []string{"main.go", "kept.log", "sub/build/x", "only-here"}
	stays := []string{".env", "sub/.env", "build/out", "a.log", "sub/only-here", "disk.iso"}
	for _, name := range append(carried, stays...) {
		s.local(name, "here")
	}
	s.sync()
	for _, name := range carried {
		s.has(name, "here", "here")
	}
	for _, name := range stays {
		s.has(name, "here", "-")
		s.inside(name, "there")
	}
	s.sync()
	for _, name := range stays {
		s.has(name, "here", "there")
		s.remove(s.box.path("w"), name)
	}

	// To allow it inside carries nothing in that was ignored at the beginning.
	s.inside(".gitignore", "*.tmp\n")
	s.inside("x.tmp", "there")
	s.sync()
	s.sync()
	s.has(".env", "here", "-")
	s.has(".gitignore", "*.tmp\n", "*.tmp\n")

	all := newSides(t, Options{Ignored: true})
	all.local(".gitignore", ".env\n")
	all.local(".env", "here")
	all.sync()
	all.has(".env", "here", "here")
}

func TestWhatTheEditorMayDoForTheSandbox(t *testing.T) {
	s := newSides(t, Options{})
	s.local(".gitignore", ".env\n")
	f, err := New(s.box, s.o)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]bool{ // to read, to write
		"a": {true, true}, "sub/new": {true, true}, ".env": {false, false}, "sub/.env": {false, false}, ".git/HEAD": {true, true},
		".git/hooks/x": {true, false}, ".git/config": {true, false}, "sub/.git/config": {true, false}, ".git": {true, false}, ".GIT/config": {true, false},
		"": {false, false}, "../x": {false, false},
	} {
		for i, ok := range want {
			if err := f.Allow(filepath.Join(s.here, name), i == 1); (err == nil) != ok {
				t.Errorf("%s, to write %v: %v", name, i == 1, err)
			}
		}
	}
}

func TestAStateIsTakenUpAgain(t *testing.T) {
	s := newSides(t, Options{})
	s.local("a", "a")
	s.local("b", "b")
	s.sync()
	state := s.State()
	s.local("a", "here")
	s.inside("b", "there")
	next, err := New(s.box, s.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Restore(state); err != nil {
		t.Fatal(err)
	}
	s.Folder = next
	if r := s.sync(); len(r.Conflicts) != 0 {
		t.Errorf("%+v", r)
	}
	s.has("a", "here", "here")
	s.has("b", "there", "there")

	// Without it equal files are found equal, and others kept.
	if next, err = New(s.box, s.o); err != nil {
		t.Fatal(err)
	}
	s.Folder = next
	s.local("a", "newer")
	if r := s.sync(); len(r.Conflicts) != 1 {
		t.Errorf("%+v", r)
	}
	s.has("a", "newer", "newer")
	s.has("a.from-sandbox", "here", "-")
}

func TestFoldersThatAreNoProject(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, dir := range []string{"/", home, filepath.Dir(home), filepath.Join(home, "nothing")} {
		if _, err := New(&box{}, Options{Local: dir, Inside: "/w"}); err == nil {
			t.Errorf("%s may be carried", dir)
		}
	}
}
