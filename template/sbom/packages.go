// Package sbom lists what is installed in a template's image according to its package managers:
// Debian's, Python's and Node's. It only reads the image.
package sbom

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"net/textproto"
	"path"
	"slices"
	"strings"

	"github.com/package-url/packageurl-go"

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
	// maxFile limits the size of a file that is read, and maxPackages the number of packages.
	maxFile     = 32 << 20
	maxPackages = 100_000
)

// Packages lists what is installed, by kind and name. Unreadable entries are skipped.
func Packages(t *tree.Tree) ([]Package, error) {
	f := finder{distro: distro(t)}
	err := tree.Walk(t.Root(), func(name string, n *tree.Node) error {
		if !n.IsFile() || len(f.found) >= maxPackages {
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
	distro string
	found  []Package
}

func (f *finder) read(name string, n *tree.Node, with func(name, text string)) error {
	if n.Data.Size > maxFile {
		return nil
	}
	text, err := n.Data.Read(maxFile)
	if err == nil {
		with(name, string(text))
	}
	return err
}

// fields parses paragraphs of NAME: VALUE, as Debian and Python write them.
func fields(text string, each func(textproto.MIMEHeader)) {
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(paragraph + "\n\n"))).ReadMIMEHeader()
		if (err == nil || err == io.EOF) && len(h) > 0 {
			each(h)
		}
	}
}

func (f *finder) debian(name, text string) {
	fields(text, func(h textproto.MIMEHeader) {
		if status := h.Get("Status"); status != "" && !strings.HasSuffix(status, " installed") || h.Get("Package") == "" {
			return
		}
		f.found = append(f.found, Package{
			Kind: packageurl.TypeDebian, Name: h.Get("Package"), Version: h.Get("Version"), Arch: h.Get("Architecture"), Distro: f.distro, Path: "/" + name,
		})
	})
}

func (f *finder) python(name, text string) {
	head, _, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") // the description follows
	fields(head, func(h textproto.MIMEHeader) {
		if h.Get("Name") == "" {
			return
		}
		plain := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(h.Get("Name")))
		license := cmp.Or(h.Get("License-Expression"), h.Get("License"))
		f.found = append(f.found, Package{Kind: packageurl.TypePyPi, Name: plain, Version: h.Get("Version"), License: oneLine(license), Path: "/" + name})
	})
}

func (f *finder) node(name, text string) {
	var m struct {
		Name, Version string
		License       any
	}
	if json.Unmarshal([]byte(text), &m) != nil || m.Name == "" || m.Version == "" {
		return
	}
	license, _ := m.License.(string)
	f.found = append(f.found, Package{Kind: packageurl.TypeNPM, Name: m.Name, Version: m.Version, License: oneLine(license), Path: "/" + name})
}

// oneLine omits full texts of licences.
func oneLine(license string) string {
	if len(license) > 100 || strings.ContainsAny(license, "\r\n") {
		return ""
	}
	return license
}

// distro is the image's distribution with its version, or "".
func distro(t *tree.Tree) string {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		n, err := t.Get(name)
		if err != nil || !n.IsFile() || n.Data.Size > maxFile {
			continue
		}
		text, err := n.Data.Read(maxFile)
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
