package stateio

import "runtime"

// pagesFileReaders is how many threads read the memory of a checkpoint.
var pagesFileReaders = min(max(2, runtime.NumCPU()), pagesFileFDDefaultMaxParallel)
