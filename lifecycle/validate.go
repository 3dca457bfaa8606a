package lifecycle

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// newSandbox turns a request into a sandbox, with its engine chosen and defaults filled in.
func (s *Service) newSandbox(ctx context.Context, project string, req bothy.SandboxCreate) (*store.Sandbox, error) {
	engine, err := s.engines.Choose(ctx, req.Engine, req.RequireAcceleration)
	if err != nil {
		return nil, err
	}
	sb := &store.Sandbox{
		Sandbox: bothy.Sandbox{
			ID: instance.NewID("sbx"), ProjectID: project, Name: req.Name, Template: req.Template, Engine: engine.Info().Name,
			CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB,
			OnTimeout: req.OnTimeout, IdleSeconds: req.IdleSeconds, AutoResume: req.AutoResume, OnHostLoss: req.OnHostLoss, CheckpointSeconds: req.CheckpointSeconds,
			Env: maps.Clone(req.Env), Metadata: maps.Clone(req.Metadata),
			TimeoutSeconds: bothy.DefaultTimeoutSeconds,
			CreatedAt:      s.clock.Now().UTC(),
		},
		RequireAcceleration: req.RequireAcceleration, EndWhenIdle: req.EndWhenIdle,
	}
	sb.HostLabels = maps.Clone(req.HostLabels)
	if o := bothy.OnceFrom(ctx); o != nil {
		sb.Key, sb.KeyPrint = o.Key, o.Print
	}
	if req.TimeoutSeconds != nil {
		sb.TimeoutSeconds = *req.TimeoutSeconds
	}
	if req.Network != nil {
		sb.Network = *req.Network
	}
	if sb.Network.Mode == "" {
		sb.Network.Mode = bothy.NetworkOff
	}
	if sb.Template == "" {
		sb.Template = bothy.DefaultTemplate
	}
	if sb.OnTimeout == "" {
		sb.OnTimeout = bothy.TimeoutTerminate
	}
	if sb.OnHostLoss == "" {
		sb.OnHostLoss = bothy.HostLossPause
	}
	if err := fillSize(&sb.Sandbox, req.Size); err != nil {
		return nil, err
	}
	if err := s.o.Meter.CheckBudget(req.Budget); err != nil {
		return nil, err
	}
	if err := s.check(&sb.Sandbox); err != nil {
		return nil, err
	}
	return sb, s.checkRepo(req.Repo, sb.Network)
}

func fillSize(sb *bothy.Sandbox, name string) error {
	size := bothy.Size{CPU: bothy.DefaultCPU, MemoryMB: bothy.DefaultMemoryMB, DiskMB: bothy.DefaultDiskMB}
	if name != "" {
		var ok bool
		if size, ok = bothy.Sizes[name]; !ok {
			return invalid("size %q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(bothy.Sizes)), ", ")).
				WithHint("Use one of them, or give cpu, memory_mb and disk_mb.")
		}
	}
	if sb.CPU == 0 {
		sb.CPU = size.CPU
	}
	if sb.MemoryMB == 0 {
		sb.MemoryMB = size.MemoryMB
	}
	if sb.DiskMB == 0 {
		sb.DiskMB = size.DiskMB
	}
	return nil
}

func invalid(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, format, args...)
}

// check returns an error for values outside of what any host supports.
func (s *Service) check(sb *bothy.Sandbox) error {
	for _, c := range []struct {
		name     string
		v        float64
		min, max float64
	}{
		{"cpu", sb.CPU, bothy.MinCPU, bothy.MaxCPU},
		{"memory_mb", float64(sb.MemoryMB), bothy.MinMemoryMB, bothy.MaxMemoryMB},
		{"disk_mb", float64(sb.DiskMB), bothy.MinDiskMB, bothy.MaxDiskMB},
		{"timeout_seconds", float64(sb.TimeoutSeconds), 0, bothy.MaxTimeoutSeconds},
		{"idle_seconds", float64(sb.IdleSeconds), 0, bothy.MaxTimeoutSeconds},
	} {
		// This form also refuses NaN.
		if !(c.v >= c.min && c.v <= c.max) {
			return invalid("%s is %v", c.name, c.v).WithHint("Give a value from %v to %v.", c.min, c.max)
		}
	}
	if sb.OnTimeout != bothy.TimeoutTerminate && sb.OnTimeout != bothy.TimeoutPause {
		return invalid("on_timeout is %q", sb.OnTimeout).WithHint("Give terminate or pause.")
	}
	if n := sb.CheckpointSeconds; n != 0 && (n < bothy.MinCheckpointSeconds || n > bothy.MaxCheckpointSeconds) {
		return invalid("checkpoint_seconds is %d", n).
			WithHint("Give a value from %d to %d, or 0 for no checkpoints.", bothy.MinCheckpointSeconds, bothy.MaxCheckpointSeconds)
	}
	switch sb.OnHostLoss {
	case "", bothy.HostLossPause, bothy.HostLossResume, bothy.HostLossFail:
	default:
		return invalid("on_host_loss is %q", sb.OnHostLoss).WithHint("Give pause, resume or fail.")
	}
	if err := s.checkNetwork(sb.Network); err != nil {
		return err
	}
	if err := checkName(sb.Name); err != nil {
		return err
	}
	if err := checkPairs("metadata", sb.Metadata); err != nil {
		return err
	}
	return checkEnv(sb.Env)
}

const (
	maxName      = 128
	maxPairs     = 256
	maxPairBytes = 64 << 10
)

func checkName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return invalid("the name is longer than %d bytes or contains control characters", maxName).WithHint("Choose a shorter, printable name.")
	}
	return nil
}

func checkPairs(what string, m map[string]string) error {
	total := 0
	for k, v := range m {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("%s has an empty key, or text that is not UTF-8", what).WithHint("Use UTF-8 text with non-empty keys.")
		}
		total += len(k) + len(v)
	}
	if len(m) > maxPairs || total > maxPairBytes {
		return invalid("%s has %d entries with %d bytes in total", what, len(m), total).
			WithHint("Give at most %d entries and %d bytes.", maxPairs, maxPairBytes)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	for k, v := range env {
		control := strings.ContainsFunc(k, func(r rune) bool { return r < ' ' })
		if control || strings.Contains(k, "=") || strings.ContainsRune(v, 0) {
			return invalid("environment variable %q has '=' or a control character in its name, or contains a zero byte", k).
				WithHint("Rename it, or encode its value.")
		}
	}
	return checkPairs("env", env)
}
