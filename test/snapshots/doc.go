// Package snapshots tests on the real program and the real engine that a sandbox
// can be paused, copied and rolled back, and that nothing is lost when the
// server dies, the disk is full or a snapshot is damaged meanwhile. It needs
// root and bin/bothy, which `make build` makes. It is not imported.
package snapshots
