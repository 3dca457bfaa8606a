package config

import "github.com/bothy-dev/bothy"

// Inflight limits the server's resources that requests hold while they are processed, for each
// project and for all together.
type Inflight struct {
	// Requests are those that end by themselves, and Streams those that stay open.
	Requests           int64 `yaml:"requests"`
	RequestsPerProject int64 `yaml:"requests_per_project"`
	Streams            int64 `yaml:"streams"`
	StreamsPerProject  int64 `yaml:"streams_per_project"`
	// MemoryMB is for the bodies and answers of requests; 0 means a part of the host's, and for
	// MemoryPerProjectMB 0 means half of that.
	MemoryMB           int64 `yaml:"memory_mb"`
	MemoryPerProjectMB int64 `yaml:"memory_per_project_mb"`
	// OperatorPercent is the part of everything that only the default project may use.
	OperatorPercent int64 `yaml:"operator_percent"`
	// WaitSeconds is how long requests beyond a limit wait in line.
	WaitSeconds int `yaml:"wait_seconds"`
	// Connections is how many the API may have; 0 means a part of the descriptors that the
	// server may have. ConnectionsPerAddress applies to each address of another host; 0 means
	// half of that.
	Connections           int `yaml:"connections"`
	ConnectionsPerAddress int `yaml:"connections_per_address"`
	// Answers are those that are kept for idempotency keys.
	AnswersMB           int64 `yaml:"answers_mb"`
	AnswersPerProjectMB int64 `yaml:"answers_per_project_mb"`
	AnswersPerProject   int64 `yaml:"answers_per_project"`
}

func defaultInflight() Inflight {
	return Inflight{
		Requests: 4096, RequestsPerProject: 1024, Streams: 8192, StreamsPerProject: 4096,
		OperatorPercent: 20, WaitSeconds: 10,
		AnswersMB: 512, AnswersPerProjectMB: 64, AnswersPerProject: 100_000,
	}
}

func (i Inflight) check() error {
	for _, c := range []struct {
		key   string
		value int64
		least int64
	}{
		{"requests", i.Requests, 1}, {"requests_per_project", i.RequestsPerProject, 1},
		{"streams", i.Streams, 1}, {"streams_per_project", i.StreamsPerProject, 1},
		{"memory_mb", i.MemoryMB, 0}, {"memory_per_project_mb", i.MemoryPerProjectMB, 0}, {"wait_seconds", int64(i.WaitSeconds), 0},
		{"connections", int64(i.Connections), 0}, {"connections_per_address", int64(i.ConnectionsPerAddress), 0},
		{"answers_mb", i.AnswersMB, 1}, {"answers_per_project_mb", i.AnswersPerProjectMB, 1}, {"answers_per_project", i.AnswersPerProject, 1},
	} {
		if c.value < c.least {
			return bothy.Errorf(bothy.CodeInvalid, "inflight.%s is %d", c.key, c.value).WithHint("Give %d or more.", c.least)
		}
	}
	if i.OperatorPercent < 0 || i.OperatorPercent > 90 {
		return bothy.Errorf(bothy.CodeInvalid, "inflight.operator_percent is %d", i.OperatorPercent).WithHint("Give 0 to 90.")
	}
	return nil
}
