// Package templates holds the definitions of the built-in templates, as files
// that a person can read. The package template builds them.
package templates

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

// Files are the definitions: NAME.yaml, and the lists that they refer to.
//
//go:embed *.yaml *.in *.lock *.json *.gpg *.py
var Files embed.FS

// Browser is the Dockerfile of the template browser, which is built like a user's own template, when it
// is asked for.
//
//go:embed browser.Dockerfile
var Browser string

// Names are the names of the definitions, sorted.
func Names() []string { return NamesIn(Files) }

// NamesIn are the names of the definitions in a folder, sorted.
func NamesIn(files fs.FS) []string {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(p, ".yaml")
	}
	slices.Sort(paths)
	return paths
}
