package vfs

import "gvisor.dev/gvisor/pkg/tuning"

// mangleAll has paths escaped where there is nothing to escape, too.
var mangleAll = !tuning.On("mount-paths")
