package apitest

import (
	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/rest"
)

// Services returns the world as the services of a server.
func (w *World) Services(tokens bothy.TokenService) rest.Services {
	return rest.Services{
		Tokens: tokens, Sandboxes: w, Exec: w, Code: w, Files: w.Files(), Templates: w, Capturer: w,
		Builder: &Builder{Made: w.MadeTemplate}, Snapshots: w, Events: w, Network: w, Metrics: w, Ports: w, SSH: w,
		Links: &Links{World: w}, Webhooks: &Webhooks{}, Agents: &Agents{}, Mover: w, Logs: w, Limits: w,
		Projects: &Projects{}, Usage: &Usage{}, Host: &Host{}, Cluster: &Cluster{}, Audit: &Audit{},
	}
}
