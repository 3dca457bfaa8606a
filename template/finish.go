package template

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// defaultPath is where commands are looked for.
const defaultPath = userHome + "/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// file is a small file of the root file system.
type file struct {
	path    string
	mode    fs.FileMode
	content string
}

// everywhere are the files in every template.
var everywhere = []file{
	{"/etc/hostname", 0o644, "sandbox\n"},
	{"/etc/hosts", 0o644, "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
	{"/etc/machine-id", 0o444, ""},
	{"/etc/resolv.conf", 0o644, "nameserver 10.0.0.1\n"},
}

// sudoers lets the user become root without a password. Host names are not looked up, since a
// sandbox without a network would wait for a response.
const sudoers = `Defaults !fqdn
Defaults env_keep += "DEBIAN_FRONTEND LANG PYTHONUNBUFFERED SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS CURL_CA_BUNDLE GIT_SSL_CAINFO http_proxy https_proxy no_proxy"
` + userName + ` ALL=(ALL:ALL) NOPASSWD: ALL
`

// folders are the folders in every template, some of them mount points.
var folders = []struct {
	path string
	mode fs.FileMode
	uid  int
}{
	{"/.bothy", 0o755, 0},
	{"/dev", 0o755, 0},
	{"/etc", 0o755, 0},
	{"/home", 0o755, 0},
	{"/proc", 0o555, 0},
	// Not 0700: `ls -l /` would fail for the user under gVisor, and hiding it
	// is pointless since the user may become root.
	{"/root", 0o755, 0},
	{"/run", 0o755, 0},
	{"/sys", 0o555, 0},
	{"/tmp", 0o777 | fs.ModeSticky, 0},
	{"/var/tmp", 0o777 | fs.ModeSticky, 0},
	{userHome, 0o755, userID},
	{"/workspace", 0o755, userID},
}

// finish adds what every template needs, whatever it was made from: the user, the folders, the
// names, and no trace of the build host. searchPath is the PATH of commands; "" means the
// default.
func finish(r files, searchPath string) error {
	for _, d := range folders {
		if r.keeps() && r.exists(d.path) {
			continue
		}
		if err := r.mkdir(d.path, d.mode, d.uid); err != nil {
			return fmt.Errorf("make %s: %w", d.path, err)
		}
	}
	for _, f := range everywhere {
		if err := r.write(f.path, f.content, f.mode); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	if err := addUser(r); err != nil {
		return fmt.Errorf("add the user: %w", err)
	}
	if err := allowPing(r); err != nil {
		return fmt.Errorf("let the user ping: %w", err)
	}
	if err := home(r); err != nil {
		return fmt.Errorf("fill the home folder: %w", err)
	}
	if err := shells(r, cmp.Or(searchPath, defaultPath)); err != nil {
		return fmt.Errorf("set up shells: %w", err)
	}
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := r.empty(dir); err != nil {
			return fmt.Errorf("empty %s: %w", dir, err)
		}
	}
	return r.remove("/.dockerenv")
}

// allowPing makes ping set-user-id. Its capability is an extended attribute, which images do
// not have.
func allowPing(r files) error {
	at, err := r.resolve("/usr/bin/ping", true)
	if err != nil || !r.exists(at) {
		return err
	}
	return r.chmod(at, 0o755|fs.ModeSetuid)
}

// home copies the files that a new account gets.
func home(r files) error {
	if r.keeps() && r.exists(userHome+"/.profile") {
		return nil
	}
	entries, err := r.list("/etc/skel")
	if err != nil {
		return err
	}
	for _, e := range entries {
		to := path.Join(userHome, e.Name())
		if !e.Type().IsRegular() || r.exists(to) {
			continue
		}
		data, err := r.read(path.Join("/etc/skel", e.Name()))
		if err != nil {
			return err
		}
		if err := r.write(to, string(data), 0o644); err != nil {
			return err
		}
	}
	return r.chownAll(userHome, userID)
}

// resetPath is how Debian's /etc/profile begins: it discards the PATH that a command was given,
// and starts a program to do so.
const resetPath = `if [ "$(id -u)" -eq 0 ]; then
  PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
else
  PATH="/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
fi
export PATH
`

// ownPath is how the replacement begins.
const ownPath = `export PATH="${PATH:-`

// shells configures login shells, which run commands: PATH is the template's unless the command
// was given another.
func shells(r files, searchPath string) error {
	profile, _ := r.read("/etc/profile") // treat an unreadable one as missing
	if text := string(profile); strings.Contains(text, resetPath) && !strings.ContainsAny(searchPath, "\"$`\\}") {
		text = strings.Replace(text, resetPath, fmt.Sprintf("%s%s}\"\n", ownPath, searchPath), 1)
		if err := r.write("/etc/profile", text, 0o644); err != nil {
			return err
		}
	} else if r.keeps() && strings.Contains(text, ownPath) {
		// It is that of a template.
	} else if r.exists("/etc/profile.d") {
		if err := r.write("/etc/profile.d/bothy.sh", fmt.Sprintf("export PATH=%q\n", searchPath), 0o644); err != nil {
			return err
		}
	}
	if !r.exists("/usr/bin/sudo") {
		return nil
	}
	return r.write("/etc/sudoers.d/bothy", sudoers, 0o440)
}
