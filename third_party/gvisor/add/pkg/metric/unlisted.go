package metric

import (
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/tuning"
)

// listed says whether there is a list of all metrics, to be written out.
var listed = !tuning.On("metrics")

// unlisted makes a metric that counts, and is known to nobody but who made it.
func unlisted(name string, metadata Uint64Metadata) (*Uint64Metric, error) {
	fm, err := newFieldMapper(metadata.Fields...)
	if err != nil {
		return nil, err
	}
	return &Uint64Metric{name: name, fields: make([]atomicbitops.Uint64, fm.numKeys()), fieldMapper: fm}, nil
}
