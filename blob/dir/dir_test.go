package dir_test

import (
	"testing"

	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/blob/blobtest"
	"github.com/bothy-dev/bothy/blob/dir"
)

func TestStore(t *testing.T) {
	blobtest.Run(t, func(t *testing.T, root string) blob.Store {
		s, err := dir.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
