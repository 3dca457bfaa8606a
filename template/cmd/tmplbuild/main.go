// Command tmplbuild builds a template into a folder, without a server. It is for working on the
// templates themselves; otherwise use bothy template build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template"
)

func main() {
	dir := flag.String("dir", "/var/lib/bothy/templates", "the templates' `folder`")
	image := flag.String("image", "", "make the template from this OCI `image`")
	share := flag.String("share", "", "the `folder` of the data files that come with bothy")
	force := flag.Bool("force", false, "build again although the template is there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx = bothy.WithCaller(ctx, &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin}})
	lib := template.NewLibrary(*dir, template.Options{Share: *share})
	for _, name := range flag.Args() {
		start := time.Now()
		t, err := lib.BuildTemplate(ctx, bothy.TemplateBuild{Name: name, Image: *image, Force: *force}, show)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			var e *bothy.Error
			if errors.As(err, &e) {
				fmt.Fprintln(os.Stderr, e.Hint)
			}
			os.Exit(1)
		}
		fmt.Printf("%s  %s  %d MB  %.1fs\n", t.Name, t.Digest[:19], t.SizeBytes>>20, time.Since(start).Seconds())
	}
}

func show(e bothy.BuildEvent) {
	fmt.Fprintf(os.Stderr, "%3.0f%% %-9s %s\n", e.Percent, e.Step, e.Message)
}
