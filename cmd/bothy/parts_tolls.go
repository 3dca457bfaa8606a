//go:build !bare

package main

import (
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/lifecycle"
)

// withTolls and withKeys leave the parts as they are. A build with the tag bare,
// which is only for measuring what they cost, does without.
func withTolls(o lifecycle.Options) lifecycle.Options { return o }

func withKeys(s api.Services) api.Services { return s }
