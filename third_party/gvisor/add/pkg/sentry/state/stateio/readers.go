package stateio

import (
	"runtime"

	"gvisor.dev/gvisor/pkg/tuning"
)

// pagesFileReaders is how many threads read the memory of a checkpoint.
var pagesFileReaders = func() int {
	if !tuning.On("page-readers") {
		return pagesFileFDDefaultMaxParallel
	}
	return min(max(2, runtime.NumCPU()), pagesFileFDDefaultMaxParallel)
}()
