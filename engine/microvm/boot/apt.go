package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy/internal/wholefile"
)

// metaPackage is the Debian package that depends on the newest kernel for clouds.
const metaPackage = "linux-image-cloud-amd64"

// debianKernel fetches Debian's kernel through apt, which checks its signature, and
// makes it the current one. have is the current one, or empty.
func debianKernel(ctx context.Context, dir string, have kernel, o Options) (kernel, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return kernel{}, errors.New("apt-get, which fetches Debian's, is not on this host; name a kernel in `engine.microvm.kernel`")
	}
	if o.Update {
		o.progress("apt-get update")
		if _, err := apt(ctx, "", "apt-get", "update"); err != nil {
			return kernel{}, err
		}
	}
	name, err := newestPackage(ctx)
	if err != nil && !o.Update {
		// A fresh host has no lists yet.
		o.progress("apt-get update")
		if _, err := apt(ctx, "", "apt-get", "update"); err != nil {
			return kernel{}, err
		}
		name, err = newestPackage(ctx)
	}
	if err != nil {
		return kernel{}, err
	}
	if have.Source == name.source() && have.modules() != "" {
		return have, nil
	}
	tmp, err := downloadFolder(dir)
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(tmp)
	o.progress("fetch %s %s", name.name, name.version)
	if _, err := apt(ctx, tmp, "apt-get", "download", name.name+"="+name.version); err != nil {
		return kernel{}, err
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(found) != 1 {
		return kernel{}, fmt.Errorf("apt-get fetched %d packages", len(found))
	}
	o.progress("unpack %s", name.name)
	digest, err := fileDigest(found[0])
	if err != nil {
		return kernel{}, err
	}
	u, err := openKernel(found[0], "")
	if err != nil {
		return kernel{}, err
	}
	u.source = name.source()
	k, err := publishKernel(ctx, dir, "kernel-"+digest[:12], u, o)
	if err != nil {
		return kernel{}, err
	}
	return k, wholefile.Write(filepath.Join(dir, current), []byte(filepath.Base(k.dir)+"\n"), 0o644)
}

// downloadFolder makes a folder that apt's own user can write to.
func downloadFolder(dir string) (string, error) {
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", err
	}
	if u, err := user.Lookup("_apt"); err == nil {
		if uid, err := strconv.Atoi(u.Uid); err == nil {
			_ = os.Chown(tmp, uid, -1)
		}
	}
	return tmp, nil
}

// debPackage is one version of a package.
type debPackage struct{ name, version string }

func (p debPackage) source() string { return p.name + " " + p.version }

var kernelPackage = regexp.MustCompile(`^(linux-image-[0-9][^ ]*-cloud-amd64)\b(?: \(= ([^)]+)\))?`)

// newestPackage asks apt what the metapackage depends on.
func newestPackage(ctx context.Context) (debPackage, error) {
	out, err := apt(ctx, "", "apt-cache", "show", "--no-all-versions", metaPackage)
	if err != nil {
		return debPackage{}, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if _, seen := fields[key]; ok && !seen {
			fields[key] = value
		}
	}
	for d := range strings.SplitSeq(fields["Depends"], ", ") {
		if m := kernelPackage.FindStringSubmatch(d); m != nil {
			if m[2] == "" {
				m[2] = fields["Version"]
			}
			return debPackage{m[1], m[2]}, nil
		}
	}
	return debPackage{}, fmt.Errorf("the package %s names no kernel", metaPackage)
}

// apt runs a program of apt's in dir.
func apt(ctx context.Context, dir string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-q"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, args[0], err, lastLine(stderr.String()))
	}
	return stdout.Bytes(), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
