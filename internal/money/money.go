// Package money formats amounts of money.
package money

import (
	"strconv"
	"strings"
)

// Text returns an amount with as many decimals as it needs, from two to six.
func Text(v float64) string {
	s := strings.TrimRight(strconv.FormatFloat(v, 'f', 6, 64), "0")
	whole, cents, _ := strings.Cut(s, ".")
	return whole + "." + cents + strings.Repeat("0", max(0, 2-len(cents)))
}
