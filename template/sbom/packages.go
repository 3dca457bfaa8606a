// Package sbom lists what is installed in a template's image according to its package managers:
// Debian's, Python's and Node's. It only reads the image.
package sbom

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/package-url/packageurl-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/template/tree"
)

// Package is an installed package.
type Package struct {
	Kind    string // deb, pypi or npm
	Name    string
	Version string
	License string // as declared by the package; often empty
	Arch    string // of a Debian package
	Distro  string // such as debian-12, for a Debian package
	Path    string // where the image says so
}

// URL is the package URL (purl), by which scanners identify it.
func (p Package) URL() string {
	space, name := "", p.Name
	var more packageurl.Qualifiers
	switch p.Kind {
	case packageurl.TypeDebian:
		space, _, _ = strings.Cut(p.Distro, "-")
		for key, value := range map[string]string{"arch": p.Arch, "distro": p.Distro} {
			if value != "" {
				more = append(more, packageurl.Qualifier{Key: key, Value: value})
			}
		}
	case packageurl.TypeNPM:
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			space, name = name[:i], name[i+1:]
		}
	}
	return packageurl.NewPackageURL(p.Kind, space, name, p.Version, more, "").ToString()
}

const (
	// maxFile limits the size of a file that is read, maxBytes that of all of them, and
	// maxPackages the number of packages.
	maxFile, maxBytes = 32 << 20, 512 << 20
	maxPackages       = 50_000
	// maxField limits a field of a package, and packageBytes is the memory that one takes, with
	// its place in a document.
	maxField, packageBytes = 1 << 10, 4 << 10
)

// Packages lists what is installed, by kind and name. Unreadable entries are skipped. A file
// with several names counts once. The files are read from image, if it is not nil.
func Packages(ctx context.Context, t *tree.Tree, image io.ReaderAt) ([]Package, error) {
	f := finder{ctx: ctx, image: image, distro: distro(t, image), seen: map[*tree.Node]bool{}}
	err := tree.Walk(t.Root(), func(name string, n *tree.Node) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !n.IsFile() {
			return nil
		}
		dir, base := path.Split(name)
		switch {
		case name == "var/lib/dpkg/status", dir == "var/lib/dpkg/status.d/" && !strings.HasSuffix(base, ".md5sums"):
			return f.read(name, n, f.debian)
		case base == "METADATA" && strings.HasSuffix(dir, ".dist-info/"), base == "PKG-INFO" && strings.HasSuffix(dir, ".egg-info/"):
			return f.read(name, n, f.python)
		case base == "package.json" && isNodePackage(dir):
			return f.read(name, n, f.node)
		}
		return nil
	})
	slices.SortFunc(f.found, func(a, b Package) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version), strings.Compare(a.Path, b.Path))
	})
	return f.found, err
}

// isNodePackage reports whether npm installed a folder: NAME or @SCOPE/NAME in a node_modules.
func isNodePackage(dir string) bool {
	above, _ := path.Split(strings.TrimSuffix(dir, "/"))
	above = strings.TrimSuffix(above, "/")
	if strings.HasPrefix(path.Base(above), "@") {
		above = path.Dir(above)
	}
	return path.Base(above) == "node_modules"
}

type finder struct {
	ctx    context.Context
	image  io.ReaderAt
	distro string
	found  []Package
	seen   map[*tree.Node]bool
	bytes  int64 // that have been read
}

func (f *finder) read(name string, n *tree.Node, with func(name, text string)) error {
	if n.Data.Size > maxFile || f.seen[n] {
		return nil
	}
	f.seen[n] = true
	if f.bytes += n.Data.Size; f.bytes > maxBytes {
		return tooMuch("the descriptions of the image's packages have more than %d MB", maxBytes>>20)
	}
	const copies = 3 // of the text, while it is parsed
	if err := bothy.TakeMemory(f.ctx, copies*n.Data.Size); err != nil {
		return err
	}
	defer bothy.GiveMemory(f.ctx, copies*n.Data.Size)
	text, err := n.Data.ReadIn(f.image, maxFile)
	if err != nil {
		return err
	}
	before := len(f.found)
	with(name, string(text))
	if len(f.found) > maxPackages {
		return tooMuch("the image has more than %d packages", maxPackages)
	}
	return bothy.TakeMemory(f.ctx, int64(len(f.found)-before)*packageBytes)
}

func tooMuch(format string, limit int) error {
	return bothy.Errorf(bothy.CodeTooLarge, format, limit).
		WithHint("Push the template to a registry, and use a scanner that reads images there.")
}

// add adds a package, unless its fields are no package's.
func (f *finder) add(p Package) {
	if p.Name == "" || len(f.found) > maxPackages {
		return
	}
	for _, field := range []string{p.Name, p.Version, p.Arch, p.License} {
		if len(field) > maxField {
			return
		}
	}
	f.found = append(f.found, p)
}

// paragraphs parses text of NAME: VALUE in paragraphs, as Debian and Python write it, and calls
// each with the wanted fields of each paragraph. Names are in lower case. One that contains
// anything else is skipped.
func paragraphs(text string, each func(field map[string]string), wanted ...string) {
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		if m := fields(paragraph, wanted); len(m) > 0 {
			each(m)
		}
	}
}

// fields returns the wanted fields of a paragraph. The first of a name counts, and lines that
// begin with a space continue it.
func fields(paragraph string, wanted []string) map[string]string {
	m, last := map[string]string{}, ""
	for line := range strings.Lines(strings.TrimLeft(paragraph, "\n")) {
		line = strings.TrimRight(line, " \t\n")
		if line == "" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if last != "" && len(m[last]) <= maxField {
				m[last] += " " + strings.TrimSpace(line)
			}
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil
		}
		last = ""
		if name = strings.ToLower(name); slices.Contains(wanted, name) && m[name] == "" {
			m[name], last = strings.TrimSpace(value), name
		}
	}
	return m
}

func (f *finder) debian(name, text string) {
	paragraphs(text, func(field map[string]string) {
		if status := field["status"]; status != "" && !strings.HasSuffix(status, " installed") {
			return
		}
		f.add(Package{
			Kind: packageurl.TypeDebian, Name: field["package"], Version: field["version"], Arch: field["architecture"], Distro: f.distro, Path: "/" + name,
		})
	}, "status", "package", "version", "architecture")
}

func (f *finder) python(name, text string) {
	head, _, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") // the description follows
	paragraphs(head, func(field map[string]string) {
		plain := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(field["name"]))
		license := cmp.Or(field["license-expression"], field["license"])
		f.add(Package{Kind: packageurl.TypePyPi, Name: plain, Version: field["version"], License: oneLine(license), Path: "/" + name})
	}, "name", "version", "license", "license-expression")
}

func (f *finder) node(name, text string) {
	var m struct {
		Name, Version string
		License       any
	}
	limits := bounded.JSONLimits{Bytes: maxFile, Depth: 100, Values: 100_000}
	if bounded.JSON(f.ctx, strings.NewReader(text), &m, limits) != nil || m.Version == "" {
		return
	}
	license, _ := m.License.(string)
	f.add(Package{Kind: packageurl.TypeNPM, Name: m.Name, Version: m.Version, License: oneLine(license), Path: "/" + name})
}

// oneLine omits full texts of licences.
func oneLine(license string) string {
	if len(license) > 100 || strings.ContainsAny(license, "\r\n") {
		return ""
	}
	return license
}

// distro is the image's distribution with its version, or "".
func distro(t *tree.Tree, image io.ReaderAt) string {
	const most = 64 << 10
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		n, err := t.Get(name)
		if err != nil || !n.IsFile() || n.Data.Size > most {
			continue
		}
		text, err := n.Data.ReadIn(image, most)
		if err != nil {
			continue
		}
		set := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			set[key] = strings.Trim(value, `"'`)
		}
		if set["ID"] != "" {
			return strings.TrimSuffix(set["ID"]+"-"+set["VERSION_ID"], "-")
		}
	}
	return ""
}
