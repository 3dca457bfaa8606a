// Package template builds and stores templates, which sandboxes start from. Its
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
// A build happens under .build, is synced to disk, and is then renamed into
// place: a template appears atomically. An image never changes, so sandboxes and
// snapshots refer to theirs by digest while the name moves on. Several servers
// may share the folder.
//
// # What runs where
//
// Debian's own maintainer scripts run in a chroot with its own mount namespace,
// under mmdebstrap. Nothing else is executed: wheels are only unpacked, and the
// layers of an image are only read. Every path inside a root file system is
// resolved as the sandbox would see it, so that a link in an image cannot lead
// to a file of the host.
package template
