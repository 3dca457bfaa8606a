package api

import (
	"io"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// A sender who stops in the middle is told so, and does not keep the import.
func TestImportThatComesToAStandstill(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times.ArchiveSilence = 50 * time.Millisecond })
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("half an archive")) }()
	f.failed(bothy.CodeTimeout, f.do("POST", "/v1/snapshots/import", r, header{"Content-Type": "application/octet-stream"}))
}
