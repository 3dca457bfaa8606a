//go:build linux && !clientonly

package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/server"
	"github.com/bothy-dev/bothy/snapshot"
)

// needs counts what needs an engine build.
type needs struct{ snapshots, sandboxes int }

func (n needs) String() string {
	var list []string
	if n.snapshots > 0 {
		list = append(list, counted(n.snapshots, "snapshot"))
	}
	if n.sandboxes > 0 {
		list = append(list, counted(n.sandboxes, "running sandbox"))
	}
	if len(list) == 0 {
		return "needed by nothing"
	}
	return "needed by " + strings.Join(list, " and ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, strings.Replace(what, "sandbox", "sandboxe", 1))
}

// checkBuilds lists the engine builds that a server keeps, and who needs them.
func checkBuilds(c config.Config) doctor.Result {
	if err := builds.CheckRefuse(c.Engines.Refuse); err != nil {
		return doctor.Result{Status: doctor.Fail, Detail: err.Error() + "."}
	}
	kept, err := builds.List(server.BuildsFolder(c))
	var need map[string]needs
	if err == nil {
		need, err = buildNeeds(c)
	}
	if err != nil {
		return doctor.Result{Status: doctor.Warn, Detail: fmt.Sprintf("The kept builds cannot be read: %v.", err), Fix: "Run it as the user that the server runs as."}
	}
	if len(kept) == 0 {
		return doctor.Result{Status: doctor.OK, Detail: "No server has run here yet, so none is kept."}
	}
	r := doctor.Result{Status: doctor.OK}
	var lines, refused []string
	for i := range kept {
		b := &kept[i]
		line := fmt.Sprintf("%s (%s; %d MB; %s", b.Name, strings.Join(b.Versions, ", "), b.Size()>>20, need[b.Name])
		if by := builds.RefusedBy(c.Engines.Refuse, b.Name, b); by != "" {
			line += "; refused by " + by + " in engines.refuse"
			if need[b.Name] != (needs{}) {
				refused = append(refused, b.Name)
			}
		}
		lines = append(lines, line+")")
		delete(need, b.Name)
	}
	r.Detail = fmt.Sprintf("Kept with %d MB in all: %s.", builds.TotalBytes(kept)>>20, strings.Join(lines, ", "))
	for name, n := range need {
		if n.snapshots > 0 {
			r.Detail += fmt.Sprintf(" The build %s is not kept, and %s: they restore only their files.", name, n)
		}
	}
	if len(refused) > 0 {
		r.Status = doctor.Warn
		r.Fix = "What was written by a refused build gives its files alone, and what runs with it runs on: resume, pause or delete it as you need."
	}
	return r
}

// buildNeeds counts snapshots and running sandboxes by their build.
func buildNeeds(c config.Config) (map[string]needs, error) {
	all := map[string]needs{}
	manifests, err := server.SnapshotManifests(c)
	if err != nil {
		return nil, err
	}
	for _, text := range manifests {
		if build := snapshot.BuildOf(text); build != "" {
			n := all[build]
			n.snapshots++
			all[build] = n
		}
	}
	running, err := register.Running(server.RegisterFolder(c))
	for _, m := range running {
		// What all engines record about their machines.
		var state struct {
			Build string `json:"build"`
		}
		if json.Unmarshal(m.EngineState, &state) == nil && state.Build != "" {
			n := all[state.Build]
			n.sandboxes++
			all[state.Build] = n
		}
	}
	return all, err
}
