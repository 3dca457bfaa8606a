package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/api/inflight"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/telemetry"
)

// Default limits for requests, when the settings give none: a quarter of the memory of the host, or
// of what this process may use of it, and a quarter of its file descriptors, within these bounds. Sandboxes need the rest.
const (
	memoryShare, leastMemory, mostMemory = 4, 256 << 20, 2 << 30
	// leastTrees is the least that builds need for the files of a large image.
	leastTrees                       = 512 << 20
	connShare, leastConns, mostConns = 4, 64, 16384
)

// openInflight creates the limits on what requests in flight may hold.
func (s *Server) openInflight() *inflight.Limits {
	c := s.config.Inflight
	bounds := func(total, project int64) inflight.Bounds {
		return inflight.Bounds{
			Total: total, Project: min(project, total), Reserved: total * c.OperatorPercent / 100,
			Waiting: int(c.RequestsPerProject), Wait: time.Duration(c.WaitSeconds) * time.Second,
		}
	}
	memory := func(least int64) inflight.Bounds {
		total := c.MemoryMB << 20
		if total == 0 {
			total = max(min(ownMemory()/memoryShare, mostMemory), least)
		}
		ofProject := c.MemoryPerProjectMB << 20
		if ofProject == 0 {
			ofProject = total / 2
		}
		return bounds(total, ofProject)
	}
	trees := memory(leastTrees)
	trees.Wait = waitForTrees
	return &inflight.Limits{
		Requests: inflight.NewPool("requests", bounds(c.Requests, c.RequestsPerProject)),
		Streams:  inflight.NewPool("streams", bounds(c.Streams, c.StreamsPerProject)),
		Memory:   inflight.NewPool("bytes of requests and answers", memory(leastMemory)),
		Trees:    inflight.NewPool("the files of builds", trees),
	}
}

// waitForTrees is how long a build waits for the memory of others.
const waitForTrees = 2 * time.Minute

func ownMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return leastMemory * memoryShare
	}
	return min(int64(info.Totalram)*int64(info.Unit), cgroup.OwnMemoryLimit())
}

// connections returns the maximum number of API connections, in total and per address.
func (s *Server) connections() (all, perAddress int) {
	c := s.config.Inflight
	all = c.Connections
	if all == 0 {
		all = leastConns
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil { // the Go runtime has raised the soft limit to the hard one
			all = int(max(min(limit.Cur/connShare, mostConns), leastConns))
		}
	}
	perAddress = c.ConnectionsPerAddress
	if perAddress == 0 {
		perAddress = max(all/2, 1)
	}
	s.log.Info("connections to the API are limited", "all", all, "per_address", perAddress)
	return all, perAddress
}

func (s *Server) answerBounds() store.AnswerBounds {
	c := s.config.Inflight
	return store.AnswerBounds{ProjectBytes: c.AnswersPerProjectMB << 20, Bytes: c.AnswersMB << 20, ProjectKeys: c.AnswersPerProject}
}

// held returns what requests in flight hold, for the metrics.
func (s *Server) held() (all []telemetry.Inflight) {
	for _, x := range []struct {
		resource string
		pool     *inflight.Pool
	}{{"requests", s.inflight.Requests}, {"streams", s.inflight.Streams}, {"memory_bytes", s.inflight.Memory}, {"tree_bytes", s.inflight.Trees}} {
		i := telemetry.Inflight{Resource: x.resource}
		i.Held, i.Refused = x.pool.Stats()
		all = append(all, i)
	}
	return all
}
