package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/wholefile"
)

// A Source is a file on the host that becomes a part of a build. One already in the
// store is not copied.
type Source struct {
	From string
	// Role or Place, as in File.
	Role, Place string
}

// Put records the build of this server's engine, with its files, and holds it for as long as the
// server runs. A complete build with the same name and stamp is used as it is. If the operator
// refuses the build, the error has CodeEngineMissing.
func (s *Store) Put(b Build, from []Source) (*Held, error) {
	if by := s.refused(b.Name, &b); by != "" {
		return nil, refusesOwn(b.Name, by)
	}
	if b.Stamp == "" || !s.isThere(&b) {
		if err := s.write(&b, from); err != nil {
			return nil, fmt.Errorf("keep the engine build %s: %w", b.Name, err)
		}
	}
	s.mu.Lock()
	s.own[b.Engine] = b.Name
	s.mu.Unlock()
	h, err := s.Hold(b.Engine, b.Name)
	if err == nil {
		return h, nil
	}
	if by := s.refused(b.Name, &b); by != "" {
		return nil, refusesOwn(b.Name, by)
	}
	// What was just written can be used; something older was damaged.
	if b.Stamp == "" {
		return nil, err
	}
	if werr := s.write(&b, from); werr != nil {
		return nil, errors.Join(err, werr)
	}
	return s.Hold(b.Engine, b.Name)
}

func refusesOwn(name, by string) error {
	return bothy.Errorf(bothy.CodeEngineMissing, "%s in engines.refuse names this server's own engine build %s", by, name).
		WithHint("Install a Bothy with another build, or take the entry out of the settings.")
}

// isThere reports whether a record has b's stamp, and fills b in from it.
func (s *Store) isThere(b *Build) bool {
	s.mu.Lock()
	old, err := s.read(b.Name)
	s.mu.Unlock()
	if err != nil || old.Stamp != b.Stamp || old.Protocol != b.Protocol || old.Host != b.Host {
		return false
	}
	*b = *old
	return true
}

func (s *Store) write(b *Build, from []Source) error {
	b.Files = nil
	for _, src := range from {
		f, err := s.add(src)
		if err != nil {
			return err
		}
		b.Files = append(b.Files, f)
	}
	if err := failpoint.Hit("builds.files"); err != nil {
		return err
	}
	b.Tree = treeName(b)
	s.Pin(b.Tree)
	if err := s.makeTree(b); err != nil {
		return err
	}
	b.CreatedAt = time.Now().UTC()
	if err := wholefile.Sync(s.dir); err != nil {
		return err
	}
	if err := failpoint.Hit("builds.record"); err != nil {
		return err
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(s.record(b.Name), append(data, '\n'), 0o644)
}

// add copies a file into the store, under its digest.
func (s *Store) add(src Source) (File, error) {
	in, err := os.Open(src.From)
	if err != nil {
		return File{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return File{}, err
	}
	f := File{Role: src.Role, Place: src.Place, Size: info.Size()}
	if filepath.Dir(src.From) == filepath.Clean(s.dir) {
		f.Name = filepath.Base(src.From)
		f.SHA256, err = sum(in)
		if err == nil && !strings.Contains(f.Name, f.SHA256) {
			err = fmt.Errorf("%s is damaged: its SHA-256 is %s", src.From, f.SHA256)
		}
		return f, err
	}
	mode := fs.FileMode(0o644)
	kind := "file-"
	if info.Mode()&0o111 != 0 {
		mode, kind = 0o755, "program-"
	}
	out, err := os.CreateTemp(s.dir, newPrefix)
	if err != nil {
		return f, err
	}
	defer os.Remove(out.Name())
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), in)
	if err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close()); err != nil {
		return f, err
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	f.Name = kind + f.SHA256
	s.Pin(f.Name) // no record names it yet
	to := filepath.Join(s.dir, f.Name)
	if whole(to, f) {
		return f, nil
	}
	return f, os.Rename(out.Name(), to)
}

// whole reports whether a file exists and has the right content.
func whole(path string, f File) bool {
	got, err := Digest(path)
	return err == nil && got == f.SHA256
}

// Digest returns the SHA-256 of a file, in hex.
func Digest(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return sum(in)
}

func sum(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// newPrefix begins the names of unfinished files, and goingPrefix those of files being
// removed.
const (
	newPrefix     = wholefile.Draft
	extractPrefix = ".extract-" // of package embedded
	goingPrefix   = ".going-"
	treePrefix    = "tree-"
)

// treeName returns the name of the folder with the files that have places, or "".
func treeName(b *Build) string {
	var lines []string
	for _, f := range b.Files {
		if f.Place != "" {
			lines = append(lines, f.Place+" "+f.Name+"\n")
		}
	}
	if len(lines) == 0 {
		return ""
	}
	for _, d := range b.Dirs {
		lines = append(lines, d+"/\n")
	}
	slices.Sort(lines)
	digest := sha256.Sum256([]byte(strings.Join(lines, "")))
	return treePrefix + hex.EncodeToString(digest[:])
}

// makeTree links a build's files into its tree, unless that exists.
func (s *Store) makeTree(b *Build) error {
	s.making.Lock()
	defer s.making.Unlock()
	to := filepath.Join(s.dir, b.Tree)
	if b.Tree == "" || s.treeIsWhole(b) == nil {
		return nil
	}
	temp, err := os.MkdirTemp(s.dir, newPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	for _, d := range b.Dirs {
		if err := os.MkdirAll(filepath.Join(temp, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range b.Files {
		if f.Place == "" {
			continue
		}
		path := filepath.Join(temp, f.Place)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Link(filepath.Join(s.dir, f.Name), path); err != nil {
			return err
		}
	}
	if err := s.removeAtomically(b.Tree); err != nil {
		return err
	}
	return os.Rename(temp, to)
}

// treeIsWhole checks that each place of a tree has the file of the store.
func (s *Store) treeIsWhole(b *Build) error {
	for _, f := range b.Files {
		if f.Place == "" {
			continue
		}
		is, err := os.Lstat(filepath.Join(s.dir, b.Tree, f.Place))
		if err != nil {
			return err
		}
		want, err := os.Lstat(filepath.Join(s.dir, f.Name))
		if err != nil {
			return err
		}
		if !os.SameFile(is, want) {
			return fmt.Errorf("%s in %s is another file", f.Place, b.Tree)
		}
	}
	return nil
}

// removeAtomically removes a file or a folder in one step, as others see it.
func (s *Store) removeAtomically(name string) error {
	going := filepath.Join(s.dir, goingPrefix+name)
	if err := os.RemoveAll(going); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(s.dir, name), going); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.RemoveAll(going)
}

// record returns the path of a build's record.
func (s *Store) record(name string) string { return recordPath(s.dir, name) }

func recordPath(dir, name string) string {
	return filepath.Join(dir, recordsDir, name+".json")
}

// read reads a build's record. The name may come from outside.
func (s *Store) read(name string) (*Build, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("%q is not the name of a build", name)
	}
	return readRecord(s.record(name))
}

func readRecord(path string) (*Build, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &Build{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if b.Name+".json" != filepath.Base(path) {
		return nil, fmt.Errorf("%s is the record of %q", path, b.Name)
	}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("%s names %w", path, err)
	}
	return b, nil
}

// check refuses paths that lead out of the store's folder.
func (b *Build) check() error {
	for _, f := range b.Files {
		if f.Name != filepath.Base(f.Name) || strings.HasPrefix(f.Name, ".") || !isPlace(f.Place) {
			return fmt.Errorf("the file %q", f.Name)
		}
	}
	if slices.ContainsFunc(b.Dirs, func(d string) bool { return !isPlace(d) }) {
		return errors.New("a folder outside of its tree")
	}
	if b.Tree != "" && b.Tree != treeName(b) {
		return errors.New("another tree than its files make")
	}
	return nil
}

// isPlace accepts "" and paths inside a tree.
func isPlace(path string) bool {
	return path == "" || filepath.IsLocal("."+filepath.Join("/", path)) && !strings.Contains(path, "..")
}
