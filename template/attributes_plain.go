//go:build !gvisorpatched

package template

// keepAttributes is whether the images of templates have extended attributes: gVisor as it is
// published refuses a file that has any.
const keepAttributes = false
