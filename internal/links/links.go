// Package links checks whether links that a sandbox has sent are safe.
package links

import "strings"

// Climbs reports whether a link goes up after it has gone down. Where that leads depends on what
// the folder on the way is, and a later copy may replace that: there may be nothing yet, or an
// empty folder, which a link can replace. Links that only begin by going up start at a folder
// that stays, since it contains them.
func Climbs(target string) bool {
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if down {
				return true
			}
		default:
			down = true
		}
	}
	return false
}
