// Package template keeps and makes templates: what sandboxes start from. Its
// Library implements bothy.TemplateService. The server and the command line use
// it; engines only see the paths of images.
//
// # On disk
//
//	<dir>/<name>/<hex>/rootfs.erofs    the image, hex being its SHA-256
//	<dir>/<name>/<hex>/manifest.json   bothy.Template
//	<dir>/<name>/current               symbolic link to <hex>
//	<dir>/.build/<name>/               a build at work, or the rest of a dead one
//	<dir>/.cache/                      downloads, safe to delete
//	<dir>/.locks/                      one lock file per name
//
// A build happens under .build, is flushed to disk, and is then renamed into
// place: a template is there whole or not at all. An image never changes, so
// sandboxes and snapshots hold on to theirs by digest while its name moves on.
// Several servers may share the folder.
//
// # What runs where
//
// Debian's own maintainer scripts run in a chroot with a mount namespace of its
// own, under mmdebstrap. Of all else nothing runs: wheels are only unpacked, and
// the layers of an image are only read. Every path inside a root file system is
// looked up as the sandbox would see it, so that a link in an image cannot lead
// to a file of the host.
package template
