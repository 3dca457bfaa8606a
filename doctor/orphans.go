package doctor

import (
	"context"
	"fmt"
	"strings"
)

// mostNamed is how many orphans are named; if there are more, only their number is given.
const mostNamed = 5

// checkOrphans looks for machines that no server will end.
func (h *Host) checkOrphans(context.Context) Result {
	if h.Orphans == nil || h.euid != 0 {
		return ok("Not looked for: only root can.")
	}
	names, err := h.Orphans()
	if err != nil {
		return warn(fmt.Sprintf("Sandboxes without a server could not be looked for: %v.", err), "Run it as root.")
	}
	if len(names) == 0 {
		return ok("Every sandbox on this host belongs to a server's folder.")
	}
	listed := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return warn(fmt.Sprintf("Sandboxes run whose server's folder was deleted: %s.", listed), "End them: sudo bothy doctor --fix")
}
