// Package e2e tests the whole of Bothy as its users and its enemies meet it: the
// real program as a child process, the real engine, and the Go client in
// between. It needs root and bin/bothy, which `make build` makes. Nobody imports
// it.
//
// The attacks are Python programs under testdata that run inside a sandbox. Each
// prints what became of everything that it tried; the test next to it says what
// may have come of that. Meanwhile a neighbour must keep answering, and after
// the last test nothing may be left on the host.
package e2e
