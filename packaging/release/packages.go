package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// requires are the other packages that a server needs, as each kind of system names them.
// mmdebstrap is only needed to build templates.
var requires = map[string]struct{ depends, recommends []string }{
	"deb": {[]string{"ca-certificates", "erofs-utils", "iproute2"}, []string{"mmdebstrap"}},
	"rpm": {[]string{"ca-certificates", "erofs-utils", "iproute"}, nil},
}

// pack writes a package of a format for installing into /usr.
func (r release) pack(format string, list []file) error {
	work, err := os.MkdirTemp("", "bothy-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	service, err := unit("/usr")
	if err != nil {
		return err
	}
	servicePath := filepath.Join(work, "bothy.service")
	if err := os.WriteFile(servicePath, service, 0o644); err != nil {
		return err
	}
	var contents files.Contents
	add := func(from, to, kind string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}})
	}
	for _, f := range list {
		add(f.from, path.Join("/usr", f.to), files.TypeFile, f.mode)
	}
	add(servicePath, "/usr/lib/systemd/system/bothy.service", files.TypeFile, 0o644)
	add("packaging/release/bothy.yaml", "/etc/bothy.yaml", files.TypeConfigNoReplace, 0o600)
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "bothy", Arch: "amd64", Platform: "linux", Version: r.packageVersion(), VersionSchema: "none", MTime: r.time,
		Maintainer: "The authors of Bothy <packages@bothy.example.org>", Homepage: "https://github.com/bothy-dev/bothy", License: "Apache-2.0", Section: "admin", Priority: "optional",
		Description: "Disposable, isolated Linux machines for AI agents\nEach sandbox has its own kernel, root file system and checked network.",
		Overridables: nfpm.Overridables{
			Depends: requires[format].depends, Recommends: requires[format].recommends, Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: "packaging/release/after-install", PreRemove: "packaging/release/before-remove", PostRemove: "packaging/release/after-remove",
			},
			RPM: nfpm.RPM{BuildHost: "bothy.example.org", Summary: "Disposable, isolated Linux machines for AI agents"}, // or it would be this host's name
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	out, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	if err := packager.Package(info, out); err != nil {
		out.Close()
		return fmt.Errorf("%s: %w", format, err)
	}
	return out.Close()
}
