// Package templates holds the definitions of the built-in templates, as files
// that a person can read. Only the package template uses it.
package templates

import "embed"

// Files are the definitions: NAME.yaml, and the lists that they refer to.
//
//go:embed *.yaml *.in *.lock *.json *.gpg *.py
var Files embed.FS
