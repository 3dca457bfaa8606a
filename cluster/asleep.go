package cluster

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

var (
	// kindOfLast is the kind of a POST, by the last element of its path.
	kindOfLast = map[string]kind{"resume": wake, "connect": wake, "fork": wake, "restart": restart, "move": move}
	// using are the path elements after a sandbox's id that resume a sandbox with auto_resume.
	using = []string{"exec", "code", "files", "processes", "shells", "ports", "terminal"}
	// kindOfTool is the kind of a call of an MCP tool.
	kindOfTool = map[string]kind{
		"create_sandbox": create, "build_template": build, "get_build": build,
		"resume_sandbox": wake, "fork_sandbox": wake, "restart_sandbox": restart, "terminate_sandbox": remove,
		"run_shell": use, "run_code": use, "write_file": use, "read_file": use, "list_files": use,
	}
)

// kindOfUse determines what a request does to a sandbox.
func kindOfUse(r *http.Request, sandbox string) kind {
	_, rest, _ := strings.Cut(r.URL.Path, sandbox)
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	switch {
	case slices.Contains(using, parts[0]):
		return use
	case r.Method == http.MethodPost && len(parts) == 1:
		return kindOfLast[parts[0]]
	case r.Method == http.MethodDelete && parts[0] == "":
		return remove
	}
	return other
}

// moveBeforeResume moves a paused sandbox that is about to resume to another host if this host is full,
// cordoned or cannot restore its memory. If no other host takes it, it stays, and the attempt
// to resume it here reports why.
func (x *Router) moveBeforeResume(r *http.Request, t target, c Caller, peer *Peer) {
	ctx := r.Context()
	if t.kind != wake && t.kind != use || x.mover == nil || x.o.Wanted == nil || x.o.Here(t.sandbox) {
		return
	}
	if _, elsewhere := x.remembered(t.sandbox); elsewhere && peer == nil {
		return
	}
	o, err := x.o.Hosts.SandboxHost(ctx, t.sandbox)
	if err != nil || o.Host != x.o.Hosts.Self() || o.Sandbox != bothy.StatePaused {
		return
	}
	w, err := x.o.Wanted(ctx, t.sandbox)
	if err != nil || t.kind != wake && !w.AutoResume {
		return
	}
	if peer != nil {
		if c, err = x.o.Authenticate(r); err != nil {
			return
		}
	}
	if c.Owner != w.Project {
		return
	}
	hosts, err := x.list(ctx)
	if err != nil {
		return
	}
	n := &needs{project: w.Project, memory: w.Memory, labels: w.Labels}
	self, others := x.choose(ctx, x.withProcessors(ctx, hosts, n), n)
	if self || len(others) == 0 {
		return
	}
	for _, h := range others {
		x.count(h.Name, n)
	}
	m, err := x.mover.moveTo(ctx, t.sandbox, w.Project, others)
	if err != nil {
		x.o.Log.Warn("cannot move a paused sandbox that is about to resume to another host", "sandbox", t.sandbox, "error", err)
		return
	}
	x.o.Log.Info("a paused sandbox resumes on another host", "sandbox", t.sandbox, "host", m.To)
}

// placeCopy chooses a host for a new sandbox from a snapshot that all hosts can fetch,
// preferring the one that has it.
func (x *Router) placeCopy(w http.ResponseWriter, r *http.Request, t target, c Caller, o store.Ownership) bool {
	hosts, err := x.list(r.Context())
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	n := &needs{project: c.Owner, labels: t.labels}
	if !o.Dead {
		n.at = o.Host
	}
	if n.memory, err = x.o.Memory(r.Context(), t.snapshot); err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	return x.placeBy(w, r, t, c, hosts, n)
}
