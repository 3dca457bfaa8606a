//go:build linux && !clientonly

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/register"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/doctor"
	"github.com/bothy-dev/bothy/server"
	"github.com/bothy-dev/bothy/template"
)

// stateChecks examine what a server has stored.
func stateChecks(c config.Config) []doctor.Check {
	return []doctor.Check{
		{Name: "store", Run: func(ctx context.Context) doctor.Result { return server.CheckStore(ctx, c) }},
		{Name: "object storage", Run: func(ctx context.Context) doctor.Result { return server.CheckBlobs(ctx, c) }},
		{Name: "template images", Run: func(ctx context.Context) doctor.Result { return checkImages(ctx, c) }},
		{Name: "engine builds", Run: func(context.Context) doctor.Result { return checkBuilds(c) }},
		{Name: "sandboxes", Run: func(context.Context) doctor.Result { return checkUnclaimed(c) }},
	}
}

// checkImages compares the bytes of every template with its digest.
func checkImages(ctx context.Context, c config.Config) doctor.Result {
	everything := &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: bothy.AllScopes}
	library := template.NewLibrary(c.Templates, template.Options{})
	list, err := library.Templates(bothy.WithCaller(ctx, everything))
	if err != nil {
		return doctor.Result{Status: doctor.Fail, Detail: bothy.AsError(err).Detail + ".", Fix: bothy.AsError(err).Hint}
	}
	var bad, fixes []string
	for _, t := range list {
		row, err := library.Find(everything.ProjectID, t.Ref())
		if err == nil {
			err = template.Verify(ctx, row)
		}
		if err != nil {
			bad = append(bad, bothy.AsError(err).Detail)
			fixes = append(fixes, bothy.AsError(err).Hint)
		}
	}
	if len(bad) > 0 {
		return doctor.Result{Status: doctor.Fail, Detail: strings.Join(bad, "; ") + ".", Fix: strings.Join(fixes, " ")}
	}
	return doctor.Result{Status: doctor.OK, Detail: fmt.Sprintf("The images of %d templates are as they were built.", len(list))}
}

// checkUnclaimed lists the machines that the server sets aside.
func checkUnclaimed(c config.Config) doctor.Result {
	list, err := register.Unclaimed(server.RegisterFolder(c))
	switch {
	case err != nil:
		return doctor.Result{Status: doctor.Warn, Detail: fmt.Sprintf("The running machines cannot be read: %v.", err), Fix: "Run it as the user that the server runs as."}
	case len(list) == 0:
		return doctor.Result{Status: doctor.OK, Detail: "Every sandbox that runs is in the database."}
	}
	var all []string
	for _, u := range list {
		all = append(all, fmt.Sprintf("%s (project %s, %s, since %s)", u.ID, u.ProjectID, u.Template, u.StartedAt.Format(time.RFC3339)))
	}
	return doctor.Result{
		Status: doctor.Warn,
		Detail: "The database has lost sandboxes whose machines run, frozen: " + strings.Join(all, ", ") + ".",
		Fix:    "Restore the database from a backup and restart the server, which takes them over; or end them: bothy doctor --end-unclaimed",
	}
}

// endUnclaimed makes the server end the unclaimed machines.
func (a *app) endUnclaimed(c config.Config) error {
	list, err := register.Unclaimed(server.RegisterFolder(c))
	for _, u := range list {
		err = errors.Join(err, register.EndUnclaimed(server.RegisterFolder(c), u.ID))
		fmt.Fprintln(a.stderr, "ending", u.ID)
	}
	return err
}
