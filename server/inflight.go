package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/inflight"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/telemetry"
)

// The parts of the host that requests may have where the settings do not say: of its
// memory a quarter, and of the descriptors, which sandboxes need more of, as well.
const (
	memoryShare, leastMemory, mostMemory = 4, 256 << 20, 2 << 30
	connShare, leastConns, mostConns     = 4, 64, 16384
)

// openInflight bounds what requests hold of the server.
func (s *Server) openInflight() *inflight.Limits {
	c := s.config.Inflight
	bounds := func(total, project int64) inflight.Bounds {
		return inflight.Bounds{
			Total: total, Project: min(project, total), Reserved: total * c.OperatorPercent / 100,
			Waiting: int(c.RequestsPerProject), Wait: time.Duration(c.WaitSeconds) * time.Second,
		}
	}
	memory := c.MemoryMB << 20
	if memory == 0 {
		memory = max(min(hostMemory()/memoryShare, mostMemory), leastMemory)
	}
	ofProject := c.MemoryPerProjectMB << 20
	if ofProject == 0 {
		ofProject = memory / 2
	}
	return &inflight.Limits{
		Requests: inflight.NewPool("requests", bounds(c.Requests, c.RequestsPerProject)),
		Streams:  inflight.NewPool("streams", bounds(c.Streams, c.StreamsPerProject)),
		Memory:   inflight.NewPool("bytes of requests and answers", bounds(memory, ofProject)),
	}
}

func hostMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return leastMemory * memoryShare
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// connections are how many the API may have, in all and from one address.
func (s *Server) connections() (all, perAddress int) {
	c := s.config.Inflight
	all = c.Connections
	if all == 0 {
		all = leastConns
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil { // the runtime has raised it to what is allowed
			all = int(max(min(limit.Cur/connShare, mostConns), leastConns))
		}
	}
	perAddress = c.ConnectionsPerAddress
	if perAddress == 0 {
		perAddress = max(all/2, 1)
	}
	s.log.Info("connections to the API are bounded", "all", all, "per_address", perAddress)
	return all, perAddress
}

func (s *Server) answerBounds() store.AnswerBounds {
	c := s.config.Inflight
	return store.AnswerBounds{ProjectBytes: c.AnswersPerProjectMB << 20, Bytes: c.AnswersMB << 20, ProjectKeys: c.AnswersPerProject}
}

// held is what requests hold of the server, for its metrics.
func (s *Server) held() (all []telemetry.Inflight) {
	for _, x := range []struct {
		resource string
		pool     *inflight.Pool
	}{{"requests", s.inflight.Requests}, {"streams", s.inflight.Streams}, {"memory_bytes", s.inflight.Memory}} {
		i := telemetry.Inflight{Resource: x.resource}
		i.Held, i.Refused = x.pool.Stats()
		all = append(all, i)
	}
	return all
}
