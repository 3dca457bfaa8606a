package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/engine/sysfile"
)

// Sharing makes groups that compute all the time give way to those that need a processor only
// now and then, while all processors are busy. A group that uses about its fair share or more is
// scheduled as idle work: it gets an equal part of what the others leave, and a sandbox that
// wakes up runs immediately. Without this, an interactive command waits for a time slice of its
// neighbours at each thread switch.
//
// It needs cpu.idle, which Linux has since 5.15; without it, it does nothing.
type Sharing struct {
	p      *Parent
	idle   func() (float64, error) // the seconds that the host's processors have been idle, each
	groups map[string]*sharer
	last   time.Time
	rested float64

	stop chan struct{}
	done sync.WaitGroup
}

// sharer is one group.
type sharer struct {
	at   time.Time
	used float64 // in seconds, at that time
	rate float64 // in processors, of the last second or so
	// giving is true if the group gives way.
	giving bool
}

const (
	// lookEvery is how often it checks whether all processors are in use.
	lookEvery = 250 * time.Millisecond
	// someRest is the idle fraction of the processors' time at which no task has to
	// wait for one.
	someRest = 0.2
	// memory is the time constant of a rate's moving average.
	memory = time.Second
	// A group starts giving way at this part of the fair share, and stops at this lower one.
	beginGiving, endGiving = 0.9, 0.5
	// wanting is the rate from which a group counts among those that share.
	wanting = 0.01
)

// Share starts sharing the processors out among the groups of p, until Close.
func (p *Parent) Share() *Sharing {
	s := &Sharing{p: p, idle: hostRest, groups: map[string]*sharer{}, stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case now := <-tick.C:
				s.look(now)
			}
		}
	})
	return s
}

// Close stops it. Groups keep the weight that they have.
func (s *Sharing) Close() {
	close(s.stop)
	s.done.Wait()
}

// look measures the groups' usage, if any task may have to wait, and returns which groups should
// give way.
func (s *Sharing) look(now time.Time) {
	rested, err := s.idle()
	if err != nil {
		return
	}
	took, part := now.Sub(s.last).Seconds(), rested-s.rested
	s.last, s.rested = now, rested
	if part > someRest*took {
		return
	}
	s.read(now)
	for name, giving := range s.decide() {
		if s.p.Open(name).giveWay(giving) == nil {
			s.groups[name].giving = giving
		}
	}
}

// read updates the rates.
func (s *Sharing) read(now time.Time) {
	names, err := s.p.List()
	if err != nil {
		return
	}
	there := map[string]*sharer{}
	for _, name := range names {
		g := s.p.Open(name)
		used, err := g.CPUSeconds()
		if err != nil {
			continue // it has ended
		}
		is := s.groups[name]
		if is == nil {
			is = &sharer{at: now, used: used}
			if g.givesWay() { // an earlier server made it idle
				is.giving, is.rate = true, 1
			}
		}
		there[name] = is
		if took := now.Sub(is.at); took > 0 {
			weight := 1 - math.Exp(-took.Seconds()/memory.Seconds())
			is.rate += weight * ((used-is.used)/took.Seconds() - is.rate)
			is.at, is.used = now, used
		}
	}
	s.groups = there
}

// decide returns the groups to change, and how. A group that computes alone keeps its weight:
// the kernel spreads the threads of idle work over the processors badly.
func (s *Sharing) decide() map[string]bool {
	sum, sharers := 0.0, 0
	for _, is := range s.groups {
		if is.rate > wanting {
			sum += is.rate
			sharers++
		}
	}
	fair := sum / float64(max(sharers, 1))
	changes := map[string]bool{}
	for name, is := range s.groups {
		switch {
		case !is.giving && sharers > 1 && is.rate > max(wanting, beginGiving*fair):
			changes[name] = true
		case is.giving && (sharers < 2 || is.rate < max(wanting, endGiving*fair)):
			changes[name] = false
		}
	}
	return changes
}

// idleFile makes the kernel schedule a group as idle work among its siblings.
const idleFile = "cpu.idle"

func (g *Group) giveWay(yes bool) error {
	value := "0"
	if yes {
		value = "1"
	}
	return sysfile.Write(filepath.Join(g.dir("cpu"), idleFile), value)
}

func (g *Group) givesWay() bool {
	value, err := g.read("cpu", idleFile)
	return err == nil && value == "1"
}

// hostRest is how long each of the host's processors has been idle, on average.
func hostRest() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var rest, processors float64
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 6 || !strings.HasPrefix(words[0], "cpu") {
			break
		}
		if words[0] == "cpu" {
			for _, w := range words[4:6] { // idle, and waiting for disks
				n, err := strconv.ParseFloat(w, 64)
				if err != nil {
					return 0, err
				}
				rest += n / ticksPerSecond
			}
			continue
		}
		processors++
	}
	return rest / max(processors, 1), nil
}

// ticksPerSecond is the unit of /proc/stat, on every architecture.
const ticksPerSecond = 100
