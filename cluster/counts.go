package cluster

import "sync/atomic"

// Counts is what this host did for the cluster since its server started.
type Counts struct {
	// Freezes is how often its sandboxes were frozen because the lease was in doubt, and
	// GivenUp how many hosts it has given up.
	Freezes, GivenUp atomic.Int64
	// LostPaused are sandboxes of given-up hosts that are now paused at a snapshot, and
	// LostEnded those that ended.
	LostPaused, LostEnded atomic.Int64
	// Forwarded are requests that other hosts answered; Unanswered those that they did not.
	// Elsewhere are those that the other host refused: it did not have the sandbox, or no
	// longer, or had no room.
	Forwarded, Unanswered, Elsewhere atomic.Int64
	// Placed are new sandboxes requested from other hosts, and Refused those that they refused.
	Placed, Refused atomic.Int64
	// Thaws is how often its sandboxes were thawed after a freeze.
	Thaws atomic.Int64
}

// sent counts the outcome of a request to another host.
func (c *Counts) sent(place, answered, again bool) {
	switch {
	case answered:
		c.Forwarded.Add(1)
	case again:
		c.Elsewhere.Add(1)
	default:
		c.Unanswered.Add(1)
	}
	if place {
		c.Placed.Add(1)
		if again {
			c.Refused.Add(1)
		}
	}
}
