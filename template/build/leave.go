package build

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// leftSeconds is how long a sandbox lives that a failed build has left.
	leftSeconds = 1800
	// leftTag begins the tag of its image, which is there only while it starts.
	leftTag = "failed-"
)

// leave starts a sandbox with what there was before a command failed, where the request
// asks for one, and names it in the error.
func (j *job) leave(ctx context.Context, r *running, failed error) error {
	if !j.req.ShellOnFailure || ctx.Err() != nil || bothy.ErrorCode(failed) != bothy.CodeTemplateInvalid {
		return failed
	}
	j.mu.Lock()
	first := !j.hasLeft
	j.hasLeft = true
	j.mu.Unlock()
	if !first { // another stage, beside this one
		return failed
	}
	j.say(bothy.BuildEvent{Step: r.title, Message: "a sandbox is started with what there was before this command"})
	id, err := j.moment(ctx, r)
	if err != nil {
		j.say(bothy.BuildEvent{Step: r.title, Message: "the sandbox did not start: " + j.masked.Replace(bothy.AsError(err).Detail)})
		j.b.log.Warn("no sandbox was left by a failed build", "build", j.id, "error", err)
		return failed
	}
	j.left(id)
	e := *bothy.AsError(failed)
	e.Hint = strings.TrimSpace(e.Hint + " Sandbox " + id + " has what there was before the command: bothy sh " + id + ".")
	return &e
}

// moment starts the sandbox. It is made from an image of its own, so that it can be paused
// and woken as any other.
func (j *job) moment(ctx context.Context, r *running) (id string, err error) {
	ref, err := bothy.ParseTemplateRef(j.req.Name)
	if err != nil {
		return "", err
	}
	files, err := r.st.tree(ctx)
	if err != nil {
		return "", err
	}
	files = files.Clone()
	t := j.template(r.st)
	t.Env, t.User = maps.Clone(r.env), r.user
	if err := j.b.o.Library.Finish(files, t.Env["PATH"]); err != nil {
		return "", err
	}
	path := j.b.cache.image(keyOf("left", finishing, r.st.key, t.Env["PATH"]))
	if !j.b.cache.has(path) {
		if err := j.b.writeImage(files, path); err != nil {
			return "", err
		}
	}
	tag := leftTag + j.id
	t.Name = ref.Name + ":" + tag
	if err := j.b.o.Library.Adopt(ctx, t, path); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, j.b.o.Library.Untag(context.WithoutCancel(ctx), ref.Name, tag))
	}()
	life := leftSeconds
	sb, err := j.b.o.Sandboxes.StartFrom(ctx, bothy.SandboxCreate{
		Template: t.Ref(), Name: "build-" + j.id[len(j.id)-8:], Engine: j.req.Engine, CPU: j.req.CPU,
		MemoryMB: cmp.Or(j.req.MemoryMB, buildMemoryMB), DiskMB: cmp.Or(j.req.DiskMB, buildDiskMB), Network: &r.network, TimeoutSeconds: &life,
		Metadata: map[string]string{metadataKey: j.id},
	}, t, "")
	if err != nil {
		return "", err
	}
	return sb.ID, nil
}
