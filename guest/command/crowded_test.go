package command

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestCrowded(t *testing.T) {
	t.Parallel()
	err := crowded(1) // there are more
	if bothy.ErrorCode(err) != bothy.CodeCapacity || !strings.Contains(err.Error(), "all the 1 processes") {
		t.Errorf("at the limit: %v", err)
	}
	for _, most := range []int{0, 1 << 20} {
		if err := crowded(most); err != nil {
			t.Errorf("with room for %d: %v", most, err)
		}
	}
}
