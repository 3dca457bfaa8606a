package build

import (
	"context"
	"maps"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// leftSeconds is the timeout of a sandbox that a failed build leaves.
	leftSeconds = 1800
	// leftTag begins the tag of its image, which exists only during its start.
	leftTag = "failed-"
)

// leave starts a sandbox in the state before the failed command, if requested, and names it in
// the error.
func (j *job) leave(ctx context.Context, r *running, failed error) error {
	if !j.req.ShellOnFailure || ctx.Err() != nil || bothy.ErrorCode(failed) != bothy.CodeTemplateInvalid {
		return failed
	}
	if j.hasLeft.Swap(true) { // a concurrent stage has
		return failed
	}
	j.say(bothy.BuildEvent{Step: r.title, Message: "a sandbox is started with what there was before this command"})
	id, err := j.moment(ctx, r)
	if err != nil {
		j.say(bothy.BuildEvent{Step: r.title, Message: "the sandbox did not start: " + j.masked.Replace(bothy.AsError(err).Detail)})
		j.b.log.Warn("cannot start the sandbox for a failed build", "build", j.id, "error", err)
		return failed
	}
	j.left(id)
	e := *bothy.AsError(failed)
	e.Hint = strings.TrimSpace(e.Hint + " Sandbox " + id + " has what there was before the command: bothy sh " + id + ".")
	return &e
}

// moment starts the sandbox. It has its own image, so that it can be paused and resumed like
// any other.
func (j *job) moment(ctx context.Context, r *running) (id string, err error) {
	t := j.template(r.st)
	t.Env, t.User = maps.Clone(r.env), r.user
	img, err := j.finish(ctx, r.st, "root", t.Env["PATH"], nil, nil)
	if err != nil {
		return "", err
	}
	drop, err := j.adoptAside(ctx, t, leftTag, img)
	if err != nil {
		return "", err
	}
	defer drop()
	sb, err := j.b.o.Sandboxes.StartFrom(ctx, j.sandbox(t.Ref(), r.network, leftSeconds), t, "")
	if err != nil {
		return "", err
	}
	return sb.ID, nil
}
