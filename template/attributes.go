package template

import "encoding/binary"

// inSandboxes is the bit mask of the capabilities that commands in sandboxes may have.
const inSandboxes = 1<<0 | // CHOWN
	1<<1 | // DAC_OVERRIDE
	1<<3 | // FOWNER
	1<<4 | // FSETID
	1<<5 | // KILL
	1<<6 | // SETGID
	1<<7 | // SETUID
	1<<8 | // SETPCAP
	1<<10 | // NET_BIND_SERVICE
	1<<18 | // SYS_CHROOT
	1<<27 | // MKNOD
	1<<29 | // AUDIT_WRITE
	1<<31 // SETFCAP

// cannotRun reports whether an attribute would prevent a program from running in sandboxes:
// file capabilities that sandboxes do not have. Without the attribute it runs, like ping.
func cannotRun(name, value string) bool {
	if name != "security.capability" || len(value) < 20 {
		return false
	}
	b := []byte(value)
	const effective = 1
	low, high := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[12:])
	return b[0]&effective != 0 && (low&^uint32(inSandboxes) != 0 || high != 0)
}
