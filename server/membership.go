package server

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/template"
)

// membership is all in which a host of a cluster, which is a member, differs from a server that is alone.
type membership interface {
	lifecycle.Cluster
	Peers(ctx context.Context) ([]bothy.ClusterHost, error)

	// notStarted tells the other hosts why this one does not start.
	notStarted(why error)
	// countSealed counts the records with secrets, and those whose secrets a key does not open.
	// Without a key it counts only.
	countSealed(ctx context.Context, v *vault.Vault) (all, closed int, err error)
	// begin is called with an open database and vault, open once the API exists, and run while
	// requests are served. serveAgents works for managed agents, unless run does.
	begin(ctx context.Context) error
	open(ctx context.Context) error
	run() (stop func())
	serveAgents() (stop func())
	// frozen is why the cluster's lease has the sandboxes of this host frozen, "" if it does not.
	frozen() string
	// countsStorage is metering.Options.Storage, and sessionIDs is mcp.Services.SessionID.
	countsStorage() func() bool
	sessionIDs() func() string
	// files are those of all sandboxes.
	files() bothy.FileService

	// These are those of depot.Depot.
	Templates() *template.Shared
	Compare(ctx context.Context)
	PublishBuild(ctx context.Context, name string) error
	StoreNeeds(ctx context.Context, dir string) error
}

// alone is the membership of a server without a cluster.
type alone struct {
	lifecycle.Alone
	*Server
}

// resumeLostEvery is how often a server without a cluster looks for sandboxes that its host
// lost.
const resumeLostEvery = 3 * time.Second

// begin implements membership. Template names from an earlier cluster may be older than what is in the
// folder now. If the database cannot be written now, the next start deletes them.
func (a alone) begin(ctx context.Context) error {
	if err := a.store.ForgetTemplateNames(ctx); err != nil {
		a.log.Warn("cannot delete the template names of an earlier cluster; trying again at the next start", "error", err)
	}
	return nil
}

func (a alone) open(context.Context) error {
	a.runWebhooks()
	return nil
}

// run implements membership. It resumes the sandboxes whose machines were gone when the server started.
func (a alone) run() (stop func()) {
	return a.inBackground(func(ctx context.Context) error {
		a.lifecycle.ResumeLost(ctx, lifecycle.LostOptions{Every: resumeLostEvery, MayTake: func() bool { return !a.lifecycle.Full() }})
		return nil
	}, "cannot resume the sandboxes that the host lost")
}

func (a alone) serveAgents() (stop func()) { return a.runAgents() }
func (a alone) files() bothy.FileService   { return a.lifecycle.Files() }

func (alone) Peers(context.Context) ([]bothy.ClusterHost, error) { return nil, nil }
func (alone) notStarted(error)                                   {}
func (alone) frozen() string                                     { return "" }
func (alone) countsStorage() func() bool                         { return nil }
func (alone) sessionIDs() func() string                          { return nil }
func (alone) Templates() *template.Shared                        { return nil }
func (alone) Compare(context.Context)                            {}
func (alone) PublishBuild(context.Context, string) error         { return nil }
func (alone) StoreNeeds(context.Context, string) error           { return nil }
