package entry

import "gvisor.dev/gvisor/pkg/sentry/kernel"

// leaveGroupsOut makes a kernel without cgroups. Nobody inside may mount any, and
// what there would be of each of the seven kinds is a fifteenth of what a snapshot's
// kernel consists of.
func leaveGroupsOut() { kernel.CgroupCtrls = nil }
