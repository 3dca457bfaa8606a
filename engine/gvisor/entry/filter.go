package entry

//go:generate go test -modfile=../../../bin/go.mod -tags=gvisorpatched -run IsWhatTheLibraryCompiles -update .

// presetFilter gives the library a precompiled filter for the sentry's own system calls, which
// it would otherwise compile at every start: a fifth of the work of one. A test compares the
// two. If there is none for an architecture or configuration, the library compiles it as usual.
func presetFilter() { presetFilters(compiledFilters...) }
