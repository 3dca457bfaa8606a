package sandboxsetup

import "gvisor.dev/gvisor/pkg/tuning"

// clearAmbient has ambient capabilities cleared that cannot be there.
var clearAmbient = !tuning.On("ambient")
