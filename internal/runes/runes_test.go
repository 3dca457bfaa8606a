package runes

import "testing"

func TestPartial(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "a\xc3": 1, "aé": 0, "\xe2\x82": 2, "€": 0, "a\xf0\x9f\x98": 3, "😀": 0, "\x80\x80\x80\x80": 0, "\xff": 0,
	} {
		if got := Partial([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
