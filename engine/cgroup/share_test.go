package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// host is a host whose groups use as much as a test says.
func decided(rates map[string]float64, giving ...string) map[string]bool {
	s := &Sharing{groups: map[string]*sharer{}}
	for name, r := range rates {
		s.groups[name] = &sharer{rate: r}
	}
	for _, name := range giving {
		s.groups[name].giving = true
	}
	return s.decide()
}

func TestWhoGivesWay(t *testing.T) {
	for what, c := range map[string]struct {
		rates  map[string]float64
		giving []string
		want   map[string]bool
	}{
		"hogs give way to one that is idle": {
			map[string]float64{"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5, "idle": 0.001}, nil,
			map[string]bool{"a": true, "b": true, "c": true, "d": true},
		},
		"and to one that works a little": {
			map[string]float64{"a": 0.45, "b": 0.45, "c": 0.45, "d": 0.45, "shell": 0.2}, nil,
			map[string]bool{"a": true, "b": true, "c": true, "d": true},
		},
		"hogs that give way go on giving way, also when they get little": {
			map[string]float64{"a": 0.3, "b": 0.25, "shell": 0.3}, []string{"a", "b"},
			map[string]bool{"shell": true},
		},
		"who computes alone gives way to nobody":    {map[string]float64{"a": 1.9, "idle": 0.001}, nil, map[string]bool{}},
		"who is left to compute alone may again":    {map[string]float64{"a": 0.9, "b": 0}, []string{"a"}, map[string]bool{"a": false}},
		"who has become quiet is heard again":       {map[string]float64{"a": 0.9, "b": 0.05}, []string{"a", "b"}, map[string]bool{"b": false}},
		"who has stopped is heard again":            {map[string]float64{"a": 0}, []string{"a"}, map[string]bool{"a": false}},
		"a little work of all is everybody's":       {map[string]float64{"a": 0.005, "b": 0.004}, nil, map[string]bool{}},
		"who is between the two stays as it is":     {map[string]float64{"a": 0.9, "b": 0.4}, []string{"a", "b"}, map[string]bool{}},
		"nobody shares with who wants no processor": {map[string]float64{"a": 0.5, "b": 0.5, "c": 0, "d": 0}, []string{"a"}, map[string]bool{"b": true}},
	} {
		if got := decided(c.rates, c.giving...); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestHogsGiveWay lets one real group compute while another is idle, on a host that counts as busy or
// not.
func TestHogsGiveWay(t *testing.T) {
	p, err := NewParent(fmt.Sprintf("bothy-test-share-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Remove() })
	group := func(name string, command ...string) *Group {
		g, err := p.Create(name, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(command[0], command[1:]...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait(); g.Remove() })
		if err := g.Add(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		return g
	}
	loop := []string{"sh", "-c", "while :; do :; done"}
	hog, other, quiet := group("hog", loop...), group("other", loop...), group("quiet", "sleep", "1000")
	if _, err := os.Stat(hog.dir("cpu") + "/" + idleFile); err != nil {
		t.Skip("this kernel has no cpu.idle")
	}
	rested, busy := 0.0, false
	s := &Sharing{p: p, groups: map[string]*sharer{}}
	s.idle = func() (float64, error) { return rested, nil }
	// Repeated checks, with enough time between them to notice the hog.
	now := time.Now()
	look := func() {
		for _, g := range []*Group{hog, other} {
			before, _ := g.CPUSeconds()
			for {
				if used, err := g.CPUSeconds(); err != nil || used > before+0.05 {
					break
				}
				runtime.Gosched()
			}
		}
		now = now.Add(lookEvery)
		if !busy {
			rested += lookEvery.Seconds()
		}
		s.look(now)
	}
	for range 8 {
		look()
	}
	if hog.givesWay() || other.givesWay() {
		t.Error("a group gives way on an idle host")
	}
	busy = true
	for range 8 {
		look()
	}
	if !hog.givesWay() || !other.givesWay() || quiet.givesWay() {
		t.Errorf("on a busy host the hogs give way: %v and %v; the quiet group: %v", hog.givesWay(), other.givesWay(), quiet.givesWay())
	}
	// The next server finds out which groups already give way.
	next := &Sharing{p: p, idle: s.idle, groups: map[string]*sharer{}}
	next.look(now)
	if is := next.groups["hog"]; is == nil || !is.giving {
		t.Errorf("the next server takes the hog for %+v", is)
	}
}

func TestHostRests(t *testing.T) {
	a, err := hostRest()
	if err != nil || a <= 0 {
		t.Fatalf("the processors were idle for %v s, %v", a, err)
	}
}
