package cluster

import "sync/atomic"

// Counts is what this host did for the cluster since its server started.
type Counts struct {
	// Freezes is how often its sandboxes stood still because the lease was in doubt, and
	// GivenUp how many hosts it has given up.
	Freezes, GivenUp atomic.Int64
	// LostPaused are the sandboxes which ran on hosts that it has given up, and are paused at
	// a snapshot, and LostEnded those that have ended with them.
	LostPaused, LostEnded atomic.Int64
	// Forwarded are the requests that it passed on to other hosts, and that were answered
	// there; Unanswered those that were not. Elsewhere are those that the other host did not
	// take: it had not, or no longer, what they were about, or no room.
	Forwarded, Unanswered, Elsewhere atomic.Int64
	// Placed are new sandboxes that other hosts were asked for, and Refused those that they
	// did not take.
	Placed, Refused atomic.Int64
	// Thaws is how often its sandboxes went on again after they had stood still.
	Thaws atomic.Int64
}

// sent counts what came of a request to another host.
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
