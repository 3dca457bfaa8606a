package lifecycle

import (
	"errors"
	"syscall"

	"github.com/bothy-dev/bothy"
)

// room returns an error if the disk is full: a sandbox could then neither be stored nor write
// anything.
func (s *Service) room() error {
	if s.o.DiskFull == nil || !s.o.DiskFull() {
		return nil
	}
	return diskFull("so no sandbox can be started")
}

func diskFull(what string) *bothy.Error {
	return bothy.Errorf(bothy.CodeDiskFull, "the host's disk is full, %s", what).
		WithHint("Delete unneeded sandboxes and snapshots (bothy ls, bothy snapshots), or ask the operator for disk space.")
}

// startFault translates the error of a failed start if a full disk is the cause.
func (s *Service) startFault(err error) error {
	if bothy.ErrorCode(err) == bothy.CodeDiskFull {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || err != nil && s.room() != nil {
		return diskFull("so the sandbox could not be started").Because(err)
	}
	return err
}
