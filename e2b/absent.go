package e2b

import (
	"net/http"

	"github.com/bothy-dev/bothy"
)

// absent are calls of E2B's that have no counterpart here, and what to do instead.
var absent = []struct{ pattern, what, instead string }{
	{"/volumes", "volumes", "Keep files in a snapshot, or copy them with files.read and files.write"},
	{"/volumes/{rest...}", "volumes", "Keep files in a snapshot, or copy them with files.read and files.write"},
	{"/secrets", "E2B's secrets", "Give secrets when a sandbox is created with Bothy's own API: see docs/network.md"},
	{"/secrets/{rest...}", "E2B's secrets", "Give secrets when a sandbox is created with Bothy's own API: see docs/network.md"},
	{"/teams", "teams", "Projects of this server are kept with `bothy project`"},
	{"/teams/{rest...}", "teams", "Projects of this server are kept with `bothy project`"},
	{"/api-keys", "E2B's API for keys", "Make keys with `bothy token create --e2b`"},
	{"/api-keys/{rest...}", "E2B's API for keys", "Make keys with `bothy token create --e2b`"},
	{"/access-tokens", "access tokens", "Make keys with `bothy token create --e2b`"},
	{"/access-tokens/{rest...}", "access tokens", "Make keys with `bothy token create --e2b`"},
	{"/events/webhooks/{webhookID}/{rest...}", "the deliveries of webhooks", "`bothy webhook get` tells how far a webhook has come"},
	{"/nodes", "E2B's API for nodes", "`bothy doctor` and /metrics tell of this server"},
	{"/nodes/{rest...}", "E2B's API for nodes", "`bothy doctor` and /metrics tell of this server"},
	{"POST /templates", "older ways of building templates", "Use a newer client, or `bothy template build`"},
	{"/templates/{templateID}/{rest...}", "the history of tags, and older ways of building templates", "Use a newer client"},
	{"/v2/templates/{rest...}", "older ways of building templates", "Use a newer client"},
	{"PATCH /templates/{templateID}", "the changing of templates", "Every template of this server can be used by all of its projects"},
}

func (d *Door) absentRoutes() []Route {
	var routes []Route
	for _, a := range absent {
		routes = append(routes, route(a.pattern, "absent", bothy.ScopeSandboxesRead, func(http.ResponseWriter, *http.Request) error {
			return unsupported("%s do not exist on this server", a.what).WithHint("%s", a.instead)
		}))
	}
	return routes
}
