//go:build !amd64

package entry

func umountProgram() []byte { return nil }
