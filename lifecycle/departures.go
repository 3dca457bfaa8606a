package lifecycle

import (
	"sync"

	"github.com/bothy-dev/bothy"
)

// departures remembers which sandboxes have left for other hosts, for the calls that were
// under way in them or waited for them.
type departures struct {
	mu sync.Mutex
	to map[string]string // by sandbox
}

// maxDepartures bounds what is remembered: calls end long before.
const maxDepartures = 10_000

func (d *departures) add(id, host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to == nil || len(d.to) >= maxDepartures {
		d.to = map[string]string{}
	}
	d.to[id] = host
}

func (d *departures) remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.to, id)
}

func (d *departures) host(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to[id]
}

// elsewhere is the error for a call that has done nothing yet: the host that passes it on asks the
// other host. It is nil for a sandbox that has not left.
func (d *departures) elsewhere(id string) error {
	to := d.host(id)
	if to == "" {
		return nil
	}
	e := bothy.Errorf(bothy.CodeMisdirected, "sandbox %s is on the host %s by now", id, to).WithHint("Try again.")
	e.RetryAfter = retryAfter
	return e
}

// cutOff is the error for a call that was under way. It may have had an effect, so it is not
// passed on.
func (d *departures) cutOff(id string) error {
	to := d.host(id)
	if to == "" {
		return nil
	}
	e := bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s was moved to the host %s while the call was under way; what it began goes on there", id, to).
		WithHint("Look in the sandbox how far it came, and call again.")
	e.RetryAfter = retryAfter
	return e
}
