package lifecycle

import (
	"sync"

	"github.com/bothy-dev/bothy"
)

// departures remembers which sandboxes moved to other hosts, for calls that were in progress or
// waiting.
type departures struct {
	mu sync.Mutex
	to map[string]string // by sandbox
}

// maxDepartures limits the number remembered: calls end long before it is reached.
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

// elsewhere returns the error for a call that has not done anything yet, so the forwarding host
// can retry it on the other host. It is nil if the sandbox has not moved.
func (d *departures) elsewhere(id string) error {
	to := d.host(id)
	if to == "" {
		return nil
	}
	e := bothy.Errorf(bothy.CodeMisdirected, "sandbox %s is now on the host %s", id, to).WithHint("Try again.")
	e.RetryAfter = retryAfter
	return e
}

// cutOff returns the error for a call that was in progress. It may have had an effect, so it is
// not retried.
func (d *departures) cutOff(id string) error {
	to := d.host(id)
	if to == "" {
		return nil
	}
	e := bothy.Errorf(bothy.CodeSandboxNotReady, "sandbox %s moved to the host %s during the call; what the call started continues there", id, to).
		WithHint("Check in the sandbox what the call has done, and call again.")
	e.RetryAfter = retryAfter
	return e
}
