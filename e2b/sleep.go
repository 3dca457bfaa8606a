package e2b

import (
	"net/http"

	"github.com/bothy-dev/bothy"
)

func (d *Door) sleepRoutes() []Route {
	scope := bothy.ScopeSandboxesWrite
	return []Route{
		route("POST /sandboxes/{sandboxID}/pause", "pause-sandbox", scope, d.pause),
		route("POST /sandboxes/{sandboxID}/resume", "resume-sandbox", scope, d.resume),
		route("POST /sandboxes/{sandboxID}/connect", "connect-sandbox", scope, d.connect(lifeV1)),
		route("POST /v2/sandboxes/{sandboxID}/connect", "connect-sandbox", scope, d.connect(lifeV2)),
	}
}

func (d *Door) pause(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	id := d.id(r)
	if _, err := d.found(r.Context(), id); err != nil {
		return err
	}
	_, err := d.Snapshots.Pause(r.Context(), id, bothy.PauseOptions{FilesOnly: in.Memory != nil && !*in.Memory})
	if err != nil {
		return err
	}
	return done(w)
}

// resumeRequest is the request of connect and resume.
type resumeRequest struct {
	Timeout   *int  `json:"timeout"`
	AutoPause *bool `json:"autoPause"`
	// Memory is false if the processes should be dropped.
	Memory *bool `json:"memory"`
}

func (d *Door) resume(w http.ResponseWriter, r *http.Request) error {
	var in resumeRequest
	if err := read(w, r, &in); err != nil {
		return err
	}
	t, err := seconds(in.Timeout, lifeV1)
	if err != nil {
		return err
	}
	sb, err := d.found(r.Context(), d.id(r))
	if err != nil {
		return err
	}
	if stateOf(sb.State) != "paused" {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %q is running already", sb.ID)
	}
	return d.wake(w, r, sb, in, *t)
}

// connect answers with a running sandbox, and resumes it if necessary.
func (d *Door) connect(life int) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in resumeRequest
		if err := read(w, r, &in); err != nil {
			return err
		}
		t, err := seconds(in.Timeout, life)
		if err != nil {
			return err
		}
		sb, err := d.found(r.Context(), d.id(r))
		if err != nil {
			return err
		}
		if stateOf(sb.State) == "paused" {
			return d.wake(w, r, sb, in, *t)
		}
		if sb, err = d.extend(r.Context(), sb, *t); err != nil {
			return err
		}
		return reply(w, http.StatusOK, d.shown(r.Context(), sb))
	}
}

func (d *Door) wake(w http.ResponseWriter, r *http.Request, sb *bothy.Sandbox, in resumeRequest, life int) error {
	o := bothy.ResumeOptions{FilesOnly: in.Memory != nil && !*in.Memory}
	woken, err := d.Snapshots.Resume(r.Context(), sb.ID, o)
	if err != nil {
		return err
	}
	u := bothy.SandboxUpdate{TimeoutSeconds: &life}
	if in.AutoPause != nil {
		then := map[bool]bothy.OnTimeout{true: bothy.TimeoutPause, false: bothy.TimeoutTerminate}[*in.AutoPause]
		u.OnTimeout = &then
	}
	if woken, err = d.Sandboxes.Update(r.Context(), woken.ID, u); err != nil {
		return err
	}
	return reply(w, http.StatusCreated, d.shown(r.Context(), woken))
}
