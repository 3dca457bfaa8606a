package command

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFullHint(t *testing.T) {
	for want, st := range map[string]unix.Statfs_t{
		"all the 65536 files": {Files: 65536, Blocks: 100, Bavail: 50},
		"disk is full":        {Files: 65536, Ffree: 1, Blocks: 100},
	} {
		if got := hintOf(&st); !strings.Contains(got, want) {
			t.Errorf("the hint for %+v is %q", st, got)
		}
	}
	for _, st := range []unix.Statfs_t{{Files: 10, Ffree: 1, Blocks: 10, Bavail: 1}, {Blocks: 10, Bavail: 1}, {}} {
		if got := hintOf(&st); got != "" {
			t.Errorf("the hint for %+v is %q", st, got)
		}
	}
}
