package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A file is one of a package's.
type file struct {
	from   string // on this host
	to     string // below the prefix: bin/bothy
	mode   os.FileMode
	config bool // an absolute path, kept when the user changed it
}

// collect lists what is in every package, and makes in work what is not in bin.
func collect(work string, modules []module, sign signer) ([]file, error) {
	files := []file{
		{from: "bin/bothy", to: "bin/bothy", mode: 0o755},
		{from: "bin/bothy-bench", to: "bin/bothy-bench", mode: 0o755},
		{from: "bin/share/python-3.12.tar.zst", to: "share/bothy/python-3.12.tar.zst", mode: 0o644},
		{from: "LICENSE", to: "share/doc/bothy/LICENSE", mode: 0o644},
	}
	made := func(to string, content []byte) error {
		from := filepath.Join(work, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return err
		}
		files = append(files, file{from: from, to: to, mode: 0o644})
		return os.WriteFile(from, content, 0o644)
	}
	if sign != nil {
		key, err := sign.public()
		if err == nil {
			err = made("share/bothy/release.pub", key)
		}
		if err != nil {
			return nil, err
		}
	}
	notices, err := licences(modules)
	if err != nil {
		return nil, err
	}
	if err := made("share/doc/bothy/NOTICES", notices); err != nil {
		return nil, err
	}
	for shell, to := range map[string]string{"bash": "share/bash-completion/completions/bothy", "zsh": "share/zsh/site-functions/_bothy", "fish": "share/fish/vendor_completions.d/bothy.fish"} {
		script, err := bothy("completion", shell)
		if err == nil {
			err = made(to, script)
		}
		if err != nil {
			return nil, err
		}
	}
	pages := filepath.Join(work, "manual")
	if _, err := bothy("manual", pages); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		page, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if _, err := w.Write(page); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		if err := made("share/man/man1/"+e.Name()+".gz", b.Bytes()); err != nil {
			return nil, err
		}
	}
	settings, err := bothy("serve", "--print-config")
	if err != nil {
		return nil, err
	}
	// Everything is a default, so a file without settings says the same and outlives new defaults.
	if err := made("share/doc/bothy/bothy.yaml", settings); err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.to, b.to) })
	return files, nil
}

// bothy runs the program that is packed, apart from the settings of whoever runs this.
func bothy(args ...string) ([]byte, error) {
	cmd := exec.Command("bin/bothy", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	if args[0] == "template" { // elsewhere the folder would be in the output
		cmd.Env = append(cmd.Env, "BOTHY_TEMPLATES="+os.Getenv("BOTHY_TEMPLATES"))
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("bothy %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// templates exports built templates, signed by the release's key.
func (r release) templates(names []string, key string) error {
	for _, name := range names {
		if key == "" {
			return nil
		}
		if _, err := bothy("template", "export", name, filepath.Join(r.out, fmt.Sprintf("bothy-template-%s-linux-amd64.tar", name)), "--sign", key); err != nil {
			return err
		}
	}
	return nil
}

// unit is the service, for a program in a folder.
func unit(prefix string) ([]byte, error) {
	text, err := os.ReadFile("packaging/bothy.service")
	if err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(text, []byte("/usr/local/bin/bothy"), []byte(prefix+"/bin/bothy")), nil
}

// tarball writes what is unpacked into /usr/local.
func (r release) tarball(files []file) (err error) {
	top := fmt.Sprintf("bothy-%s-linux-amd64", r.version)
	out, err := os.Create(filepath.Join(r.out, top+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() {
		if e := out.Close(); err == nil {
			err = e
		}
	}()
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := r.add(w, f.from, path.Join(top, f.to), f.mode); err != nil {
			return err
		}
	}
	service, err := unit("/usr/local")
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(top, "lib/systemd/system/bothy.service"), Mode: 0o644, Size: int64(len(service)), ModTime: r.time, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := w.Write(service); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// A sum is the digest of one file of the release.
type sum struct{ name, sha256 string }

// checksums writes SHA256SUMS, as sha256sum reads it.
func (r release) checksums() (sums []sum, err error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, e := range entries {
		f, err := os.Open(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		s := sum{e.Name(), hex.EncodeToString(h.Sum(nil))}
		sums = append(sums, s)
		fmt.Fprintf(&text, "%s  %s\n", s.sha256, s.name)
	}
	return sums, os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}
