//go:build !amd64 || !gvisorpatched

package entry

func initProcessor() {}
