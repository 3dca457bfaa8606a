package state

import "gvisor.dev/gvisor/pkg/tuning"

// measured says whether the time of each object of a checkpoint is measured.
var measured = !tuning.On("statistics")
