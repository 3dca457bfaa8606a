package fake_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/fake"
)

func TestEngine(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	hosts := map[string]*fake.Host{}
	enginetest.Run(t, enginetest.Harness{
		RootFS: image, Guest: image,
		New: func(_ *testing.T, dir string) bothy.Engine {
			mu.Lock()
			defer mu.Unlock()
			if hosts[dir] == nil {
				hosts[dir] = &fake.Host{}
			}
			return fake.New(hosts[dir], "build-1")
		},
	})
}
