package snapshot

import (
	"context"
	"os"
	"testing"

	"github.com/bothy-dev/bothy/internal/confined"
)

// Archives are decompressed in processes of their own, where the host allows it.
func TestMain(m *testing.M) {
	if run := confined.Serve(Decompressing); run != nil {
		os.Exit(run())
	}
	if !confined.Raced {
		_ = confined.Try(context.Background())
	}
	os.Exit(m.Run())
}
