package store

import "github.com/bothy-dev/bothy"

// Template is what the server knows of a template: what clients see of it, and what only the
// server needs. As JSON it is the manifest in the template's folder.
type Template struct {
	bothy.Template

	// Origin says how the template was made; nil for those of earlier versions.
	Origin *bothy.TemplateOrigin `json:"origin,omitempty"`

	// RootFS is the path of the image. Not part of the manifest.
	RootFS string `json:"-"`
}
