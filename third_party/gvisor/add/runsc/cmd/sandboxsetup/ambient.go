package sandboxsetup

import "gvisor.dev/gvisor/pkg/tuning"

// clearAmbient says whether to clear ambient capabilities. A sentry has none.
var clearAmbient = !tuning.On("ambient")
