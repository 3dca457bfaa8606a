package fdbased

import "gvisor.dev/gvisor/pkg/tuning"

// many is how many packets are read at once, or 0 for one; each takes a buffer of 64 KB. It
// grows while that many arrive, and is not saved.
type many int

var fewFirst = tuning.On("one-packet")

func (m many) now() int {
	if !fewFirst {
		return MaxMsgsPerRecv
	}
	return max(1, int(m))
}

func (m *many) got(packets int) {
	if packets == m.now() {
		*m = many(min(2*packets, MaxMsgsPerRecv))
	}
}
