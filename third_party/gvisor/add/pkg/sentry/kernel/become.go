package kernel

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
)

// mayBecome reports whether a process may take the user and group IDs of another, which it could
// trace then.
func mayBecome(caller, target *auth.Credentials) bool {
	return caller.HasCapabilityIn(linux.CAP_SETUID, target.UserNamespace) &&
		caller.HasCapabilityIn(linux.CAP_SETGID, target.UserNamespace)
}
