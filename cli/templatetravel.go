//go:build linux && !clientonly

package cli

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/template"
)

// exported is what `template export --json` prints.
type exported struct {
	Template string `json:"template"`
	Digest   string `json:"digest"` // of the template's image
	To       string `json:"to"`
	Artifact string `json:"artifact"` // the digest of what was written
	Signed   bool   `json:"signed"`
}

func newTemplateExport(a *app) *cobra.Command {
	key, settings := "", ""
	cmd := &cobra.Command{
		Use:   "export NAME FILE",
		Short: "Write a built template to a file or a registry, for other hosts",
		Long: `Write a built template to a file, or to a registry if FILE is
oci://REGISTRY/NAME:TAG. Other hosts take it with bothy template pull, without
building it. The file is an OCI layout in a tar, and the same template makes the
same bytes. Processes that a template keeps in memory are not included.

It runs on the server's host and reads the server's folder of templates, whether
the server runs or not. For a registry it uses the credentials that docker login
has stored.`,
		Example: `  sudo bothy template export python-3.12 python-3.12.tar --sign release.pem
  sudo bothy template export python-3.12 oci://registry.example.com/bothy/python:3.12 --sign release.pem`,
		Args: usage(cobra.ExactArgs(2)),
	}
	cmd.Flags().StringVar(&key, "sign", "", "`file` with the private key to sign with (Ed25519, PEM)")
	cmd.Flags().StringVar(&settings, "config", "", "`file` with the server's settings")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var private ed25519.PrivateKey
		lib, err := a.templatesHere(settings)
		if err == nil && key != "" {
			private, err = template.ReadPrivateKey(key)
		}
		if err != nil {
			return err
		}
		bar := newProgress(a.stderr)
		t, digest, err := lib.Export(cmd.Context(), args[0], args[1], private, func(n, total int64) { bar.bytes("export "+args[0], n, total) })
		bar.done()
		if err != nil {
			return needsRoot(cmd, err)
		}
		e := &exported{Template: t.Ref(), Digest: t.Digest, To: args[1], Artifact: digest, Signed: private != nil}
		return a.show(e, func(w io.Writer) {
			fields(w, "template", e.Template, "digest", e.Digest, "to", e.To, "artifact", e.Artifact, "signed", map[bool]string{true: "yes", false: "no"}[e.Signed])
		})
	}
	return cmd
}

// pullTime is how long a pull may take.
const pullTime = time.Hour

// pullFlags say how a template is pulled.
type pullFlags struct {
	keys, digest, settings string
	unsigned               bool
	timeout                time.Duration // or else pullTime
}

// pullTemplate takes a template into the folder of the server on this host.
func (a *app) pullTemplate(ctx context.Context, from string, f pullFlags) (*bothy.Template, bool, error) {
	lib, err := a.templatesHere(f.settings)
	if err != nil {
		return nil, false, err
	}
	o := template.PullOptions{Unsigned: f.unsigned, Digest: f.digest}
	if keys := cmp.Or(f.keys, template.ReleaseKey()); keys != "" && !f.unsigned {
		if o.Keys, err = template.ReadPublicKeys(keys); err != nil {
			return nil, false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(f.timeout, pullTime))
	defer cancel()
	bar := newProgress(a.stderr)
	defer bar.done()
	o.Progress = func(n, total int64) { bar.bytes("unpack "+filepath.Base(from), n, total) }
	t, already, err := lib.Pull(ctx, from, o)
	if err != nil {
		return nil, false, err
	}
	return &t.Template, already, nil
}

// servedHere reports whether the server that is asked is the one on this host.
func (a *app) servedHere() bool {
	c, err := a.credentials()
	if err != nil {
		return false
	}
	server, err := runningServer()
	return err == nil && server != nil && sameURL(server.url(), c.URL)
}

func newTemplatePull(a *app) *cobra.Command {
	var f pullFlags
	seconds := int(pullTime / time.Second)
	cmd := &cobra.Command{
		Use:   "pull FILE",
		Short: "Take a built template from a file or a registry",
		Long: `Take a built template that bothy template export wrote from a file, or from a
registry if FILE is oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@DIGEST. It has
the name that it had where it was built, and replaces a template of that name;
sandboxes of the one before keep theirs. It takes seconds where a build takes
minutes.

A template must be signed by the key of --key, or else by that of the release which
is installed with Bothy's package. It appears when it is complete and everything
was checked. One that is here already is not read again.

It runs on the server's host and writes to the server's folder of templates, whether
the server runs or not; a running server uses the template at once. For a registry
it uses the credentials that docker login has stored.`,
		Example: `  sudo bothy template pull python-3.12.tar
  sudo bothy template pull python-3.12.tar --key release.pub
  sudo bothy template pull oci://registry.example.com/bothy/python:3.12 --key release.pub`,
		Args: usage(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.keys, "key", "", "`file` with the public key that must have signed it (Ed25519, PEM; several may follow each other)")
	flags.BoolVar(&f.unsigned, "unsigned", false, "check no signature: whoever made the template is trusted with what runs in its sandboxes")
	flags.StringVar(&f.digest, "digest", "", "only `digest` that the template's image may have")
	secondsVar(flags, &seconds, "timeout", "`time` that it may take (default 1h)")
	flags.StringVar(&f.settings, "config", "", "`file` with the server's settings")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.unsigned && f.keys != "" {
			return usageError(cmd, errors.New("--unsigned checks no signature, so --key has no use"))
		}
		f.timeout = time.Duration(seconds) * time.Second
		t, already, err := a.pullTemplate(cmd.Context(), args[0], f)
		if err != nil {
			return needsRoot(cmd, err)
		}
		if already {
			a.warn("the template %s is here already", t.Ref())
		}
		return a.show(t, func(w io.Writer) { printTemplate(w, t) })
	}
	return cmd
}

// templatesHere is the folder of templates of the server on this host.
func (a *app) templatesHere(settings string) (*template.Library, error) {
	c, err := config.Load(settings, os.Getenv)
	if err == nil {
		err = c.Finish()
	}
	if err != nil {
		return nil, err
	}
	registries := template.Registries(c.Registries)
	if err := registries.Check(); err != nil {
		return nil, err
	}
	return template.NewLibrary(c.Templates, template.Options{Registries: registries, Version: a.version, MinFreeDisk: c.Snapshots.MinFreeDiskMB << 20}), nil
}

// needsRoot explains a refusal of the file system.
func needsRoot(cmd *cobra.Command, err error) error {
	if !errors.Is(err, fs.ErrPermission) || bothy.ErrorCode(err) == bothy.CodeInvalid {
		return err
	}
	return bothy.Errorf(bothy.CodePermission, "this user cannot use the server's folder of templates: %v", err).
		WithHint("Run: sudo %s %s", cmd.CommandPath(), strings.Join(cmd.Flags().Args(), " "))
}
