//go:build !gvisorpatched

package pgalloc

// What uses the hooks of the patches is behind a build tag, because it must compile without
// them as well. This copy without the tag would leave them unused.
var _ = buildWithTheTagGvisorpatched
