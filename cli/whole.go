//go:build linux && !clientonly

package cli

import (
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/internal/repack"
	"github.com/bothy-dev/bothy/server"
)

// helper is what this process does for another one that started it, or nil.
func helper() func() int {
	switch {
	case doctor.IsProbe():
		return doctor.RunProbe
	case repack.IsConfined():
		return repack.RunConfined
	}
	return nil
}

// engineBuild names the engine inside, or is "" where none was built in.
func engineBuild() string {
	name, err := server.EngineBuild()
	if err != nil {
		return ""
	}
	return name
}
