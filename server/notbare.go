//go:build !bare

package server

import (
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/lifecycle"
)

// withMetering and withKeys leave the parts as they are. A build with the tag bare,
// which is only for measuring what they cost, does without.
func withMetering(o lifecycle.Options) lifecycle.Options { return o }

func withKeys(s api.Services) api.Services { return s }
