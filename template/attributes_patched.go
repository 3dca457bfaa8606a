//go:build gvisorpatched

package template

// keepAttributes is whether template images have extended attributes: the kernels of sandboxes
// can read them.
const keepAttributes = true
