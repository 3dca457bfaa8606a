package lifecycle

import (
	"errors"
	"syscall"

	"github.com/bothy-dev/bothy"
)

// room refuses to start a sandbox on a disk that is full: it would not be stored, and
// could write nothing.
func (s *Service) room() error {
	if s.o.DiskFull == nil || !s.o.DiskFull() {
		return nil
	}
	return diskFull("so no sandbox can be started")
}

func diskFull(what string) *bothy.Error {
	return bothy.Errorf(bothy.CodeDiskFull, "the host's disk is full, %s", what).
		WithHint("Delete sandboxes and snapshots that are not needed (bothy ls, bothy snapshots), or ask the operator for space.")
}

// startFault is what a caller is told of a start that failed: that the disk is full,
// where that is the cause.
func (s *Service) startFault(err error) error {
	if bothy.ErrorCode(err) == bothy.CodeDiskFull {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || err != nil && s.room() != nil {
		return diskFull("so the sandbox could not be started").Because(err)
	}
	return err
}
