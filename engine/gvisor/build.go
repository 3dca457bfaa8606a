package gvisor

import (
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
)

// Protocol is the version of the protocol between this server and the processes of a build:
// the requests of package driver, with the files passed along and the format of images; what
// a sentry writes to the pipe of its launch, its environment and its processes' descriptors;
// and the guest's API. How a driver talks to its own sentry is not part of it, and may change
// with each version of gVisor.
//
// Raise it with any change that an older driver or guest does not understand; then either
// support both versions, or raise OldestProtocol, too, after which snapshots of older builds
// restore only their files.
const (
	Protocol       = 1
	OldestProtocol = 1
)

// The files of a build.
const (
	roleSentry = "sentry"
	roleGuest  = "guest"
)

// keepOwn keeps the build of this server for later ones.
func keepOwn(o Options, build string, gvisor library.Library) error {
	if o.Builds == nil || o.Guest == "" {
		return nil
	}
	_, err := o.Builds.Put(builds.Build{
		Name: build, Engine: Name, Versions: []string{gvisor.Version}, Protocol: Protocol, Stamp: o.Sentry + " " + o.Guest,
	}, []builds.Source{{From: o.Sentry, Role: roleSentry}, {From: o.Guest, Role: roleGuest}})
	return err
}

// HoldBuild checks that there is a build, and keeps it.
func (e *Engine) HoldBuild(build string) (release func(), err error) {
	kept, err := e.holdBuild(build)
	return kept.Release, err
}

// holdBuild returns nil for this engine's own build, which is always kept.
func (e *Engine) holdBuild(build string) (*builds.Held, error) {
	if build == "" || build == e.build {
		return nil, nil
	}
	if e.builds == nil {
		return nil, builds.Unusable("which this server has not kept")
	}
	kept, err := e.builds.Hold(Name, build)
	if err == nil && (kept.Path(roleSentry) == "" || kept.Path(roleGuest) == "") {
		kept.Release()
		kept, err = nil, builds.Unusable("of which this server has not kept all")
	}
	return kept, err
}

// ofBuild replaces this build's parts with those of an earlier build.
func (e *Engine) ofBuild(spec bothy.MachineSpec, kept *builds.Held) (bothy.MachineSpec, program, error) {
	if kept == nil {
		spec.Build = e.build
	} else {
		spec.Guest = kept.Path(roleGuest)
	}
	sentry, err := e.sentryOf(kept)
	return spec, sentry, err
}

// ofEarlierBuild returns what the operator can do about memory that an earlier build
// cannot restore.
func (e *Engine) ofEarlierBuild(build string, err error) error {
	var be *bothy.Error
	if build == "" || build == e.build || !errors.As(err, &be) || be.Code != bothy.CodeSnapshotDamaged {
		return err
	}
	hint := fmt.Sprintf("It was written by the earlier engine build %s. If that cannot wake it again and again, the operator can add its name to engines.refuse; then the files come back.", build)
	return bothy.Errorf(be.Code, "%s", be.Detail).WithHint("%s", hint).Because(err)
}
