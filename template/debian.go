package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy/templates"
)

// aptConf configures apt in templates: minimal, and always as root, since changing users costs
// time and protects nothing there.
const aptConf = `APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
`

// dpkgConf excludes manuals and translations, also for packages installed later, and disables
// syncing every file, since the disk does not outlive the sandbox.
const dpkgConf = `force-unsafe-io
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/groff/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
path-exclude=/usr/share/man/*
`

// The hooks of mmdebstrap, run by sh with the root as $1. A failing command ends the build.
// Downloaded packages are linked in from the cache, and new ones out to it; those no longer on
// the mirror are dropped.
const (
	debsIn  = `set -e; mkdir -p "$1/var/cache/apt/archives"; find "$BOTHY_DEBS" -name '*.deb' -exec ln -t "$1/var/cache/apt/archives" {} +`
	debsOut = `set -e; chroot "$1" apt-get -qq autoclean; cd "$BOTHY_DEBS"; for f in *.deb; do [ -e "$1/var/cache/apt/archives/$f" ] || rm -f "$f"; done; find "$1/var/cache/apt/archives" -maxdepth 1 -name '*.deb' -exec ln -f -t . {} +`
	// A program that sets its locale opens one file instead of twelve.
	localeArchive = `set -e; test ! -d "$1/usr/lib/locale/C.utf8" || chroot "$1" localedef --add-to-archive /usr/lib/locale/C.utf8`

	debconf = `set -e; echo 'debconf debconf/frontend select Noninteractive' | chroot "$1" debconf-set-selections`
)

// debian installs a Debian or Ubuntu release in the root file system.
func (b *build) debian(ctx context.Context, d *debianBase) error {
	if err := needTools("mmdebstrap", "apt-get"); err != nil {
		return err
	}
	b.t.Source = "debian:" + d.Suite
	if d.Keyring != "" {
		b.t.Source = "ubuntu:" + d.Suite
	}
	kept, err := b.stagePath(d)
	if err != nil {
		return err
	}
	if !b.force {
		if done, err := b.fromStage(ctx, kept); err != nil || done {
			return errors.Join(err, b.noteRelease())
		}
	}
	if err := b.bootstrap(ctx, d); err != nil {
		return err
	}
	if err := b.configureDebian(); err != nil {
		return err
	}
	if err := trim(b.root); err != nil {
		return err
	}
	return errors.Join(b.keepStage(ctx, kept), b.noteRelease())
}

// bootstrap runs mmdebstrap.
func (b *build) bootstrap(ctx context.Context, d *debianBase) error {
	debs := filepath.Join(b.lib.dir, ".cache", "debs", d.Suite)
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	argv, err := b.mmdebstrap(ctx, d)
	if err != nil {
		return err
	}
	// The cache needs no lock: links are replaced one by one, and apt verifies the digest of
	// each file.
	env := []string{"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "BOTHY_DEBS=" + debs, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", stamp)}
	return b.command(ctx, env, argv...)
}

func (b *build) mmdebstrap(ctx context.Context, d *debianBase) ([]string, error) {
	argv := []string{"mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
		"--components=" + cmp.Or(d.Components, "main"),
		// On Ubuntu, apt is not a required package.
		"--include=" + strings.Join(append([]string{"apt"}, d.Packages...), ","),
		"--skip=check/empty,check/signed-by,essential/unlink,setup/empty",
		"--setup-hook=" + debsIn,
		"--customize-hook=" + debsOut,
		"--customize-hook=" + debconf,
		"--customize-hook=" + localeArchive,
	}
	for _, opt := range append(lines(aptConf), hostApt(ctx)...) {
		argv = append(argv, "--aptopt="+opt)
	}
	for _, opt := range lines(dpkgConf) {
		argv = append(argv, "--dpkgopt="+opt)
	}
	if d.Keyring != "" {
		path := filepath.Join(b.work, "keyring.gpg")
		key, err := templates.Files.ReadFile(d.Keyring)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, key, 0o644); err != nil {
			return nil, err
		}
		argv = append(argv, "--keyring="+path)
	}
	return append(argv, d.Suite, b.root.dir), nil
}

// configureDebian replaces the build's settings with those for sandboxes.
func (b *build) configureDebian() error {
	if err := b.root.remove("/etc/apt/apt.conf.d/99mmdebstrap", "/etc/dpkg/dpkg.cfg.d/99mmdebstrap"); err != nil {
		return err
	}
	for _, f := range []file{
		{"/etc/apt/apt.conf.d/90bothy", 0o644, aptConf},
		{"/etc/dpkg/dpkg.cfg.d/90bothy", 0o644, dpkgConf},
		{"/etc/default/locale", 0o644, "LANG=C.UTF-8\n"},
	} {
		if err := b.root.write(f.path, f.content, f.mode); err != nil {
			return err
		}
	}
	// Some packages fail to install if their manual's folder is missing.
	for section := 1; section <= 8; section++ {
		if err := b.root.mkdir(fmt.Sprintf("/usr/share/man/man%d", section), 0o755, 0); err != nil {
			return err
		}
	}
	return nil
}

// noteRelease records the name of the release in the manifest.
func (b *build) noteRelease() error {
	release, err := b.root.read("/etc/os-release")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(release)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			b.t.Packages["os"] = strings.Trim(v, `"`)
		}
	}
	return nil
}

// trim deletes caches, logs and whatever differs from build to build.
func trim(r *rootfs) error {
	for _, dir := range []string{"/run", "/tmp", "/var/tmp", "/var/lib/apt/lists", "/var/cache/apt", "/var/cache/ldconfig"} {
		if err := r.empty(dir); err != nil {
			return err
		}
	}
	return r.remove("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
		"/var/cache/debconf/templates.dat-old", "/var/cache/debconf/config.dat-old", "/var/lib/dpkg/status-old",
		"/var/log/alternatives.log", "/var/log/apt", "/var/log/bootstrap.log", "/var/log/dpkg.log")
}

// hostApt returns the settings that the host's own apt needs to reach mirrors: proxies,
// certificates, tolerance for a wrong clock.
func hostApt(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", `%f "%v";%n`).Output()
	if err != nil {
		return nil
	}
	var opts []string
	for _, line := range lines(string(out)) {
		for _, prefix := range []string{"Acquire::http::", "Acquire::https::", "Acquire::Check-Date ", "Acquire::Check-Valid-Until "} {
			if strings.HasPrefix(line, prefix) {
				opts = append(opts, line)
			}
		}
	}
	return opts
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
