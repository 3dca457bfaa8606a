//go:build gvisorpatched

package template

// keepAttributes is whether the images of templates have extended attributes: the kernels of
// sandboxes can read them.
const keepAttributes = true
