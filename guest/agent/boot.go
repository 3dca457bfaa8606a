package agent

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/abi"
)

const (
	bootIDPath = "/proc/sys/kernel/random/boot_id"
	// ownBootID is the file that is mounted over the kernel's, if the kernel is Linux.
	ownBootID = "/run/.bothy-boot-id"
)

// notifyAdopted tells the kernel that the sandbox has its identity, and the machine's id.
func (a *Agent) notifyAdopted() {
	id := []byte(a.identity.machineID + "\x00")
	_ = unix.Prctl(abi.PrctlAdopted, uintptr(unsafe.Pointer(&id[0])), uintptr(len(id)-1), 0, 0)
}

// adoptBoot gives a copy a boot id of its own: Linux draws it once, and copies of its memory
// share it. gVisor's kernel does this itself; see notifyAdopted.
func (a *Agent) adoptBoot(machine string) error {
	if a.sentry || os.Getpid() != 1 {
		return nil
	}
	kernels, err := os.ReadFile(bootIDPath)
	if err != nil {
		return fmt.Errorf("give this boot its own id: %w", err)
	}
	u := sha256.Sum256([]byte(strings.TrimSpace(string(kernels)) + machine))
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x\n", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
	// In a copy of a copy, this file is already mounted.
	if err := os.WriteFile(ownBootID, []byte(id), 0o444); err != nil {
		return fmt.Errorf("give this boot its own id: %w", err)
	}
	var over, own unix.Stat_t
	if unix.Stat(bootIDPath, &over) == nil && unix.Stat(ownBootID, &own) == nil && over.Dev == own.Dev && over.Ino == own.Ino {
		return nil
	}
	if err := unix.Mount(ownBootID, bootIDPath, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("give this boot its own id: %w", err)
	}
	return nil
}
