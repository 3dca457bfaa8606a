// Command release makes the packages of a version from what `make build` and `make client` left in
// bin: a tarball, a .deb, a .rpm and a container image, with checksums, a bill of materials and a signed provenance.
// Equal inputs make equal bytes: all times are that of the commit. packaging/release/run runs it,
// in the root of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A release is what all its files share.
type release struct {
	version string // without the tag's v
	commit  string
	time    time.Time
	out     string
}

func main() {
	var r release
	epoch := flag.Int64("epoch", 0, "`seconds` since 1970 that all times in packages are")
	key := flag.String("key", "", "`file` with the private key (Ed25519, PEM) that signs the provenance")
	names := flag.String("templates", "", "`names` of built templates to export beside the packages")
	base := flag.String("base", "", "`tar` with the root file system that the container image begins with")
	flag.StringVar(&r.version, "version", "", "the release's `version`, usually a tag")
	flag.StringVar(&r.commit, "commit", "", "the `commit` it is made from")
	flag.StringVar(&r.out, "o", "bin/release", "the `folder` to write to")
	flag.Parse()
	r.time = time.Unix(*epoch, 0).UTC()
	r.version = strings.TrimPrefix(r.version, "v")
	if err := r.make(*key, *base, strings.Fields(*names)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var (
	numbered = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+`)
	after    = regexp.MustCompile(`-([0-9]+)-g`) // how many commits after a tag, as git describe says it
	forbids  = regexp.MustCompile(`[^0-9A-Za-z.+~]`)
)

// packageVersion is the version in the order of packages: a candidate comes before its release,
// commits after a tag come after it, and what no tag describes comes before every release.
func (r release) packageVersion() string {
	v := strings.ReplaceAll(after.ReplaceAllString(r.version, "+$1.g"), "-dirty", "+dirty")
	if !numbered.MatchString(v) {
		v = "0.0.0-" + v
	}
	return forbids.ReplaceAllString(strings.ReplaceAll(v, "-", "~"), ".")
}

func (r release) make(key, base string, templates []string) error {
	if r.version == "" || r.time.Unix() <= 0 {
		return fmt.Errorf("-version and -epoch are needed")
	}
	// The key is read first: a missing one is found before the work.
	var sign signer
	if key != "" {
		var err error
		if sign, err = readKey(key); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bothy-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	modules, err := modulesOf("bin/bothy", "bin/bothy-bench", "bin/sentry", "bin/guest", "bin/vminit")
	if err != nil {
		return err
	}
	pages, err := packagesOf("console")
	if err != nil {
		return err
	}
	modules = append(modules, pages...)
	files, err := collect(work, modules, sign)
	if err != nil {
		return err
	}
	if err := r.tarball(files); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.pack(format, files); err != nil {
			return err
		}
	}
	if base != "" {
		if err := r.image(base, files); err != nil {
			return err
		}
	}
	clients, err := filepath.Glob("bin/client/bothy-*")
	if err != nil {
		return err
	}
	for _, c := range clients {
		if err := copyFile(c, filepath.Join(r.out, strings.Replace(filepath.Base(c), "bothy-", "bothy-client-"+r.version+"-", 1))); err != nil {
			return err
		}
	}
	if err := r.templates(templates, key); err != nil {
		return err
	}
	if err := r.materials(modules); err != nil {
		return err
	}
	sums, err := r.checksums()
	if err != nil {
		return err
	}
	if sign == nil {
		fmt.Fprintln(os.Stderr, "release: no key was given, so there is no provenance, and there are no templates; give KEY=FILE")
		return nil
	}
	return r.provenance(sums, sign)
}
