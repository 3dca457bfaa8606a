// The files here become part of gVisor's module: this one keeps them out of Bothy's, and is
// not copied.
module gvisor.dev/gvisor
