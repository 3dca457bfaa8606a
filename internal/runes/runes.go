// Package runes finds where UTF-8 text can be split.
package runes

import "unicode/utf8"

// Partial returns the length of the incomplete character at the end of b, or 0.
func Partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
