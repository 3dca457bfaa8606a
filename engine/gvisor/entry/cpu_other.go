//go:build !amd64

package entry

func knowProcessor() {}
