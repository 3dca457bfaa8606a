//go:build linux && !clientonly

package cli

import (
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/internal/repack"
	"github.com/bothy-dev/bothy/server"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/template/apart"
)

// helper is what this process does for another one that started it, or nil.
func helper() func() int {
	if doctor.IsProbe() {
		return doctor.RunProbe
	}
	return confined.Serve(append(apart.Tasks(), repack.Task, snapshot.Decompressing)...)
}

// engineBuild names the engine inside, or is "" where none was built in.
func engineBuild() string {
	name, err := server.EngineBuild()
	if err != nil {
		return ""
	}
	return name
}
