// Package wire holds the guest's protocol: the definitions, in one folder for
// each service, and the script that generates their code. The guest's agent
// and its client use the generated packages; no other package should.
package wire

//go:generate ./generate.sh
