package proc

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
)

// terminal returns the controlling terminal of the process and the foreground process group of
// that, as in /proc/[pid]/stat.
func (s *taskStatData) terminal() string {
	tg := s.task.ThreadGroup()
	tty := tg.TTY()
	if tty == nil {
		return "0 -1"
	}
	pgid := int32(-1)
	if pg, err := tg.ForegroundProcessGroup(tty); err == nil && pg != nil {
		pgid = int32(s.pidns.IDOfProcessGroup(pg))
	}
	return fmt.Sprintf("%d %d", linux.MakeDeviceID(linux.UNIX98_PTY_REPLICA_MAJOR, tty.Index()), pgid)
}
