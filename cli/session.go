package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// session is the server as commands see it.
type session struct {
	sandboxes bothy.SandboxService
	exec      bothy.ExecService
	code      bothy.CodeService
	shells    *client.Shells
	files     bothy.FileService
	templates bothy.TemplateService
	builder   bothy.TemplateBuilder
	capturer  bothy.TemplateCapturer
	tokens    bothy.TokenService
	snapshots bothy.SnapshotService
	mover     bothy.SnapshotMover
	network   bothy.NetworkService
	events    bothy.EventService
	metrics   bothy.MetricsService
	ports     *client.Ports
	links     bothy.LinkService
	webhooks  bothy.WebhookService
	agents    bothy.AgentService
	hosts     bothy.ClusterService
	limits    bothy.LimitsService
	usage     bothy.UsageService
	projects  bothy.ProjectService
	audit     bothy.AuditService
}

// action is the body of a command that talks to the server.
type action func(ctx context.Context, s *session, args []string) error

// do turns an action into a command's run function.
func (a *app) do(f action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := a.connect()
		if err != nil {
			return err
		}
		if args, err = s.named(cmd.Context(), cmd, args); err != nil {
			return err
		}
		return f(cmd.Context(), s, args)
	}
}

func newSession(c *client.Client) *session {
	return &session{
		sandboxes: c.Sandboxes, exec: c.Exec, code: c.Code, shells: c.Shells, files: c.Files, templates: c.Templates, builder: c.Builder, capturer: c.Templates, tokens: c.Tokens,
		snapshots: c.Snapshots, mover: c.Mover, network: c.Network, events: c.Events, metrics: c.Metrics, ports: c.Ports, links: c.Links, webhooks: c.Webhooks, agents: c.Agents, hosts: c.Hosts, limits: c.Limits, usage: c.Usage,
		projects: c.Projects, audit: c.Audit,
	}
}
