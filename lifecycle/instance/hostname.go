package instance

import (
	"strings"

	"github.com/bothy-dev/bothy/store"
)

// hostname is the sandbox's host name.
func hostname(sb *store.Sandbox) string {
	h := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, sb.Name)
	h = strings.Trim(h, "-")
	if h == "" || len(h) > 40 {
		return sb.ID
	}
	return h
}
