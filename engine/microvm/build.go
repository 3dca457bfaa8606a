package microvm

// Protocol is the version of what this server says to a virtual machine and hears from it:
// QEMU's arguments and monitor, what the first program inside is asked, and the guest's API.
// Raise it with any change that a machine of before does not understand; then either keep
// the old way beside the new one, by the build's version, or raise OldestProtocol, too, which
// leaves the files alone of what older builds have written.
const (
	Protocol       = 1
	OldestProtocol = 1
)
