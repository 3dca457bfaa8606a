package template

import (
	"maps"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ConfigOf returns what the config of an image says about running it.
func ConfigOf(c *v1.Config) bothy.ImageConfig {
	i := bothy.ImageConfig{
		Entrypoint: c.Entrypoint, Cmd: c.Cmd, Shell: c.Shell, Labels: c.Labels, StopSignal: c.StopSignal, OnBuild: c.OnBuild,
		ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Volumes: slices.Sorted(maps.Keys(c.Volumes)),
	}
	if h := c.Healthcheck; h != nil {
		i.Healthcheck = &bothy.Healthcheck{
			Test: h.Test, IntervalSeconds: h.Interval.Seconds(), TimeoutSeconds: h.Timeout.Seconds(), StartPeriodSeconds: h.StartPeriod.Seconds(), Retries: h.Retries,
		}
	}
	return i
}

// setConfig is the inverse of ConfigOf.
func setConfig(c *v1.Config, i *bothy.ImageConfig) {
	c.Entrypoint, c.Cmd, c.Shell = i.Entrypoint, i.Cmd, i.Shell
	c.Labels, c.StopSignal, c.OnBuild = maps.Clone(i.Labels), i.StopSignal, i.OnBuild
	c.ExposedPorts, c.Volumes = setOf(i.ExposedPorts), setOf(i.Volumes)
	if h := i.Healthcheck; h != nil {
		c.Healthcheck = &v1.HealthConfig{
			Test: h.Test, Interval: seconds(h.IntervalSeconds), Timeout: seconds(h.TimeoutSeconds), StartPeriod: seconds(h.StartPeriodSeconds), Retries: h.Retries,
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func setOf(list []string) map[string]struct{} {
	set := map[string]struct{}{}
	for _, item := range list {
		set[item] = struct{}{}
	}
	return set
}
