//go:build bare

package server

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/lifecycle"
)

// The "bare" build exists only for measurements: it skips authentication, quotas, metering and
// audit. The difference from a normal build is what those cost; see bench/cmd/bench. Never
// deploy it.

func withMetering(o lifecycle.Options) lifecycle.Options {
	o.Plans, o.Meter = nil, nil
	return o
}

func withKeys(s api.Services) api.Services {
	s.Tokens, s.Recorder = anybody{s.Tokens}, nil
	return s
}

// anybody accepts every key as the operator's.
type anybody struct{ bothy.TokenService }

var operator = &bothy.Caller{ProjectID: bothy.DefaultProject, TokenID: "bare", Scopes: bothy.AllScopes}

func (anybody) Authenticate(context.Context, string) (*bothy.Caller, error) { return operator, nil }
