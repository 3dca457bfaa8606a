//go:build !bare

package server

import (
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/lifecycle"
)

// withMetering and withKeys change nothing in a normal build. Builds with the tag bare disable
// metering and authentication, to measure what they cost.
func withMetering(o lifecycle.Options) lifecycle.Options { return o }

func withKeys(s api.Services) api.Services { return s }
