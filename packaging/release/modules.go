package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A module is a Go module that is part of a program, or a package of npm in the console: those have a folder.
type module struct{ path, version, sum, folder string }

// purl is the module's name among all kinds of packages.
func (m module) purl() string {
	if m.folder != "" {
		return "pkg:npm/" + strings.Replace(m.path, "@", "%40", 1) + "@" + m.version
	}
	return "pkg:golang/" + m.path + "@" + m.version
}

// packagesOf lists what the pages in a folder are made from. Tools that only build them are not part of them.
func packagesOf(folder string) ([]module, error) {
	text, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, Integrity string
			Dev                bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	var all []module
	for place, p := range lock.Packages {
		if place != "" && !p.Dev {
			all = append(all, module{strings.TrimPrefix(place, "node_modules/"), p.Version, p.Integrity, filepath.Join(folder, filepath.FromSlash(place))})
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// modulesOf lists the modules in programs, each once, and the Go library.
func modulesOf(programs ...string) ([]module, error) {
	var all []module
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w (run `make build` first)", p, err)
		}
		all = append(all, module{path: "std", version: info.GoVersion})
		for _, d := range info.Deps {
			m := module{path: d.Path, version: d.Version, sum: d.Sum}
			if d.Replace != nil && d.Replace.Version != "(devel)" { // that is a patched copy in a folder
				m = module{path: d.Replace.Path, version: d.Replace.Version, sum: d.Replace.Sum}
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path+"@"+a.version, b.path+"@"+b.version) })
	return slices.CompactFunc(all, func(a, b module) bool { return a.path == b.path && a.version == b.version }), nil
}

// notice matches the files of a module that must go with its programs.
var notice = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|notice|copyright|unlicense)([.\-_].*)?$`)

// licences is the text of all modules' licences.
func licences(modules []module) ([]byte, error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, err
	}
	places := strings.Fields(string(out))
	if len(places) != 2 {
		return nil, fmt.Errorf("go env gave %q", out)
	}
	var b bytes.Buffer
	b.WriteString("Bothy contains these modules, each under its own licence.\n")
	for _, m := range modules {
		folder := cmp.Or(m.folder, filepath.Join(places[1], escaped(m.path)+"@"+escaped(m.version)))
		if m.path == "std" {
			folder = places[0]
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !notice.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			found = true
			fmt.Fprintf(&b, "\n== %s %s: %s\n\n%s\n", m.path, m.version, e.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return nil, fmt.Errorf("the module %s has no licence in %s", m.path, folder)
		}
	}
	return b.Bytes(), nil
}

// escaped is a module's path as the cache of modules writes it: !x for each X.
func escaped(path string) string {
	var b strings.Builder
	for _, c := range path {
		if unicode.IsUpper(c) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// materials writes the bill of materials, in the format of CycloneDX.
func (r release) materials(modules []module) error {
	type property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	type component struct {
		Type       string     `json:"type"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	list := make([]component, len(modules))
	for i, m := range modules {
		list[i] = component{Type: "library", Name: m.path, Version: m.version, PURL: m.purl()}
		sum := "go.sum"
		if m.folder != "" {
			sum = "integrity"
		}
		if m.sum != "" {
			list[i].Properties = []property{{sum, m.sum}}
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp": r.time.Format("2006-01-02T15:04:05Z"),
			"component": component{Type: "application", Name: "bothy", Version: r.version},
		},
		"components": list,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("bothy-%s.cdx.json", r.version)), append(text, '\n'), 0o644)
}
