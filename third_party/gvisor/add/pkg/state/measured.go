package state

import "gvisor.dev/gvisor/pkg/tuning"

// measured says whether the time is measured that each object of a checkpoint takes.
var measured = !tuning.On("statistics")
