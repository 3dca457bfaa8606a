package api

import (
	"io"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// An import whose sender stops in the middle ends with an error.
func TestStalledImport(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times.ArchiveSilence = 50 * time.Millisecond })
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("half an archive")) }()
	f.failed(bothy.CodeTimeout, f.do("POST", "/v1/snapshots/import", r, header{"Content-Type": "application/octet-stream"}))
}
