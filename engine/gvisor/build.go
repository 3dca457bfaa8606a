package gvisor

import (
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
)

// Protocol is the version of what this server says to the processes of a build, and hears
// from them: the requests of package driver, with the files that go along and the form of
// images; what a sentry says at the pipe of its launch, and what its environment and its
// processes' descriptors are; and the guest's API. What is said to a sentry itself is its own
// driver's business, and may change with each version of gVisor.
//
// Raise it with any change that a driver or a guest of before does not understand; then
// either keep the old way next to the new one, by the build's version, or raise
// OldestProtocol, too, which leaves the files alone of what older builds have written.
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

// holdBuild returns nil for this engine's own build, which stays anyway.
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

// ofBuild puts the parts of an earlier build in place of this one's.
func (e *Engine) ofBuild(spec bothy.MachineSpec, kept *builds.Held) (bothy.MachineSpec, program, error) {
	if kept == nil {
		spec.Build = e.build
	} else {
		spec.Guest = kept.Path(roleGuest)
	}
	sentry, err := e.sentryOf(kept)
	return spec, sentry, err
}

// ofEarlierBuild says what the operator can do about memory that an earlier build cannot
// wake.
func (e *Engine) ofEarlierBuild(build string, err error) error {
	var be *bothy.Error
	if build == "" || build == e.build || !errors.As(err, &be) || be.Code != bothy.CodeSnapshotDamaged {
		return err
	}
	hint := fmt.Sprintf("It was written by the earlier engine build %s. If that cannot wake it again and again, the operator can add its name to engines.refuse; then the files come back.", build)
	return bothy.Errorf(be.Code, "%s", be.Detail).WithHint("%s", hint).Because(err)
}
