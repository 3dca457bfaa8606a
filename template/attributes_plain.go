//go:build !gvisorpatched

package template

// keepAttributes is whether template images have extended attributes: upstream gVisor refuses
// files that have any.
const keepAttributes = false
