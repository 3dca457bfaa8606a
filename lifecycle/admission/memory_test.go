package admission

import "testing"

func TestFreeMemory(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:       24000000 kB\nMemFree:  10 kB\nMemAvailable:   21299412 kB\nBuffers: 1 kB\n": 20800,
		"MemAvailable: 2048 kB":   2,
		"MemTotal: 24000000 kB\n": 1 << 30,
		"":                        1 << 30,
	} {
		if got := availableMB(text); got != want {
			t.Errorf("%q gives %d MB available, want %d", text, got, want)
		}
	}
	if got := freeMemoryMB(); got <= 0 || got == 1<<30 {
		t.Errorf("this host has %d MB available", got)
	}
}
