package template

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

func config(env ...string) v1.Config { return v1.Config{Env: env} }

func TestLayersAreFlattened(t *testing.T) {
	_, dir := buildImage(t, image(t, v1.Config{},
		layer(t,
			entry{name: "a/"}, entry{name: "a/stays", content: "1"}, entry{name: "a/changes", content: "1"}, entry{name: "a/goes", content: "1"},
			entry{name: "opaque/"}, entry{name: "opaque/old", content: "1"}, entry{name: "opaque/deep/"}, entry{name: "opaque/deep/old", content: "1"},
			entry{name: "whole/"}, entry{name: "whole/x", content: "1"},
			entry{name: "folder/"}, entry{name: "folder/x", content: "1"},
			entry{name: "link", symlink: "a"}),
		layer(t,
			entry{name: "a/changes", content: "2"}, entry{name: "a/.wh.goes"},
			entry{name: "opaque/new", content: "2"}, entry{name: "opaque/.wh..wh..opq"}, entry{name: "opaque/newer", content: "2"},
			entry{name: ".wh.whole"},
			entry{name: "folder", content: "a file now"},
			entry{name: "link/"}, entry{name: "link/in", content: "2"},
			entry{name: "hard", link: "a/stays"})))
	has(t, dir, "a/stays", "1")
	has(t, dir, "a/changes", "2")
	has(t, dir, "opaque/new", "2")
	has(t, dir, "opaque/newer", "2")
	has(t, dir, "folder", "a file now")
	has(t, dir, "link/in", "2")
	has(t, dir, "hard", "1")
	for _, gone := range []string{"a/goes", "opaque/old", "opaque/deep", "whole", "a/in"} {
		hasNot(t, dir, gone)
	}
	for _, p := range tree(t, dir) {
		if strings.Contains(p, whiteout) {
			t.Errorf("a whiteout was not applied: %s", p)
		}
	}
}

func TestALayerCannotReachTheHost(t *testing.T) {
	host := t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "secret"), []byte("secret"), 0o644))
	_, dir := buildImage(t, image(t, v1.Config{},
		layer(t,
			entry{name: "abs", symlink: host}, entry{name: "up", symlink: strings.Repeat("../", 30) + host},
			entry{name: "loop", symlink: "loop"},
			entry{name: "../../../dots", content: "inside"}, entry{name: "/rooted", content: "inside"}),
		layer(t,
			entry{name: "abs/written", content: "evil"}, entry{name: "up/written", content: "evil"},
			entry{name: "abs/.wh.secret"}, entry{name: "up/.wh..wh..opq"},
			entry{name: strings.TrimPrefix(host, "/") + "/secret", content: "the sandbox's own"},
			entry{name: "stolen", link: "abs/secret"})))
	has(t, host, "secret", "secret")
	if got := tree(t, host); !slices.Equal(got, []string{".", "secret"}) {
		t.Errorf("the host's folder holds %v", got)
	}
	// Inside, the links lead to the same paths.
	has(t, dir, filepath.Join(host, "written"), "evil")
	has(t, dir, "stolen", "the sandbox's own")
	has(t, dir, "dots", "inside")
	has(t, dir, "rooted", "inside")
}

func TestALoopOfLinksEndsTheBuild(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	img := image(t, v1.Config{}, layer(t, entry{name: "loop", symlink: "loop"}, entry{name: "loop/x", content: "1"}))
	_, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: push(t, img)}, nil)
	fails(t, err, bothy.CodeTemplateInvalid, "too many symbolic links")
}

func TestAnImageLeavesRoomOnTheDisk(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{MinFreeDisk: 1 << 60})
	ref := push(t, image(t, v1.Config{}, layer(t, entry{name: "f", content: "1"})))
	_, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: ref}, nil)
	fails(t, err, bothy.CodeDiskFull, "no room for the image")
	if _, err := l.Lookup("tools"); err == nil {
		t.Error("the template exists")
	}
}

func TestFilesOfEveryTemplateDoNotFollowAnImagesLinks(t *testing.T) {
	host := t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644))
	_, dir := buildImage(t, image(t, v1.Config{}, layer(t,
		entry{name: "etc", symlink: host}, entry{name: "workspace", symlink: host}, entry{name: "home", symlink: host})))
	if got := tree(t, host); !slices.Equal(got, []string{".", "passwd"}) {
		t.Errorf("the host's folder holds %v", got)
	}
	has(t, host, "passwd", "root:x:0:0::/:/bin/sh\n")
	has(t, dir, filepath.Join(host, "hostname"), "sandbox\n")
}

func TestModesAndOwnersOfAnImageStay(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	b, err := l.newBuild(bothy.TemplateRef{Name: "tools"}, nil)
	must(t, err)
	defer b.cleanUp()
	budget := int64(1 << 20)
	must(t, b.root.unpackLayer(t.Context(), layer(t,
		entry{name: "su", content: "x", mode: 0o4755}, entry{name: "d/", mode: 0o1777}, entry{name: "d/f", content: "x", mode: 0o600, uid: 33},
		entry{name: "dev", kind: tar.TypeChar}, entry{name: "pipe", kind: tar.TypeFifo}), &budget, io.Discard))
	info, err := os.Stat(filepath.Join(b.root.dir, "su"))
	must(t, err)
	if info.Mode() != os.ModeSetuid|0o755 {
		t.Errorf("su has mode %v", info.Mode())
	}
	info, err = os.Stat(filepath.Join(b.root.dir, "d"))
	must(t, err)
	if info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("d has mode %v", info.Mode())
	}
	if got := owner(t, filepath.Join(b.root.dir, "d/f")); got != 33 {
		t.Errorf("d/f belongs to %d", got)
	}
	hasNot(t, b.root.dir, "dev")
	hasNot(t, b.root.dir, "pipe")
}

func TestAnImageLargerThanItsBudgetIsRefused(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	b, err := l.newBuild(bothy.TemplateRef{Name: "tools"}, nil)
	must(t, err)
	defer b.cleanUp()
	budget := int64(10)
	err = b.root.unpackLayer(t.Context(), layer(t, entry{name: "a", content: "123456"}, entry{name: "b", content: "123456"}), &budget, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "contains more than") {
		t.Errorf("unpacked: %v", err)
	}
}

// A layer takes neither much memory to decompress nor many folders for its length.
func TestLayersHaveLimits(t *testing.T) {
	var window bytes.Buffer
	w, err := zstd.NewWriter(&window, zstd.WithWindowSize(128<<20))
	must(t, err)
	for range 4 { // in pieces, so that its size is unknown to the reader
		_, err := w.Write(make([]byte, 1<<20))
		must(t, err)
	}
	must(t, w.Close())
	for words, l := range map[string]v1.Layer{
		"more than 64 MB in its window":   packed{static.NewLayer(window.Bytes(), types.OCILayerZStd)},
		"more than 256 levels of folders": layer(t, entry{name: strings.Repeat("d/", 300) + "f"}),
	} {
		lib := NewLibrary(t.TempDir(), Options{})
		b, err := lib.newBuild(bothy.TemplateRef{Name: "tools"}, nil)
		must(t, err)
		defer b.cleanUp()
		budget := int64(1 << 30)
		if err := b.root.unpackLayer(t.Context(), l, &budget, io.Discard); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, and not %s", err, words)
		}
	}
}

// packed is a compressed layer, which is decompressed as the registry's client does it.
type packed struct{ v1.Layer }

func (l packed) Uncompressed() (io.ReadCloser, error) {
	compressed, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

func TestTheConfigOfAnImage(t *testing.T) {
	img := image(t, v1.Config{
		Env:        []string{"PATH=/opt/venv/bin:/bin", "A=b=c", "EMPTY=", "HOME=/root", "HOSTNAME=x"},
		WorkingDir: "/srv/app/", Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}, User: "nobody",
		Labels: map[string]string{"org.opencontainers.image.description": "Tools of the team"},
	}, layer(t, entry{name: "etc/profile.d/"}, entry{name: "bin/sh", content: "x"}))
	tmpl, dir := buildImage(t, img)
	want := map[string]string{"LANG": "C.UTF-8", "PATH": "/opt/venv/bin:/bin", "A": "b=c", "EMPTY": ""}
	if d := cmp.Diff(want, tmpl.Env); d != "" {
		t.Error(d)
	}
	if tmpl.Cwd != "/srv/app" || !slices.Equal(tmpl.Entrypoint, []string{"/entry", "serve"}) || tmpl.Description != "Tools of the team" {
		t.Errorf("manifest %+v", tmpl)
	}
	digest, err := img.Digest()
	must(t, err)
	if !strings.HasSuffix(tmpl.Source, "/team/tools:1@"+digest.String()) {
		t.Errorf("source %s", tmpl.Source)
	}
	has(t, dir, "etc/profile.d/bothy.sh", "export PATH=\"/opt/venv/bin:/bin\"\n")
	if got := owner(t, filepath.Join(dir, "srv/app")); got != userID {
		t.Errorf("/srv/app belongs to %d", got)
	}
}

func TestEveryTemplateHasTheUserAndTheFolders(t *testing.T) {
	_, dir := buildImage(t, image(t, v1.Config{}, layer(t,
		entry{name: "bin/bash", content: "x"}, entry{name: "usr/bin/sudo", content: "x", mode: 0o4755},
		entry{name: "etc/passwd", content: "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash\nuser:x:70:70::/nowhere:/bin/false\n"},
		entry{name: "etc/group", content: "root:x:0:\nshadow:x:42:\nubuntu:x:1000:\n"},
		entry{name: "etc/shadow", content: "root::19000:0:99999:7:::\nubuntu:!:19000::::::\n"},
		entry{name: "etc/skel/.bashrc", content: "alias ll='ls -l'\n"},
		entry{name: "etc/resolv.conf", symlink: "../run/systemd/resolve/stub-resolv.conf"},
		entry{name: "tmp/keep", content: "1"}, entry{name: "run/app/", uid: 33}, entry{name: ".dockerenv"},
		entry{name: "usr/bin/ping", content: "x"},
		entry{name: "dev/null", content: "not a device"})))
	has(t, dir, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n")
	has(t, dir, "etc/group", "root:x:0:\nshadow:x:42:\nuser:x:1000:\n")
	has(t, dir, "etc/shadow", "root:*:19700:0:99999:7:::\nubuntu:!:19700::::::\nuser:!:19700:0:99999:7:::\n")
	has(t, dir, "home/user/.bashrc", "alias ll='ls -l'\n")
	has(t, dir, "etc/resolv.conf", "nameserver 10.0.0.1\n")
	has(t, dir, "etc/machine-id", "")
	has(t, dir, "tmp/keep", "1")
	has(t, dir, "etc/sudoers.d/bothy", sudoers)
	for _, p := range []string{"dev/null", ".dockerenv"} {
		hasNot(t, dir, p)
	}
	for _, p := range []string{"workspace", "home/user", "home/user/.bashrc"} {
		if got := owner(t, filepath.Join(dir, p)); got != userID {
			t.Errorf("%s belongs to %d", p, got)
		}
	}
	for _, d := range folders {
		info, err := os.Stat(filepath.Join(dir, d.path))
		if err != nil || info.Mode().Perm() != d.mode.Perm() {
			t.Errorf("%s: %v, %v", d.path, info, err)
		}
	}
}

func TestExtendedAttributesStayOutOfImages(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	b, err := l.newBuild(bothy.TemplateRef{Name: "tools"}, nil)
	must(t, err)
	defer b.cleanUp()
	path := filepath.Join(b.root.dir, "marked")
	must(t, os.WriteFile(path, []byte("x"), 0o644))
	plain, marked := filepath.Join(b.work, "plain"), filepath.Join(b.work, "marked")
	must(t, mkfs(t.Context(), plain, b.root.dir))
	must(t, unix.Setxattr(path, "trusted.mark", []byte("x"), 0))
	must(t, mkfs(t.Context(), marked, b.root.dir))
	one, err := os.ReadFile(plain)
	must(t, err)
	two, err := os.ReadFile(marked)
	must(t, err)
	if !bytes.Equal(one, two) {
		t.Error("the image has an extended attribute")
	}
}

func TestAnEmptyImageBecomesATemplate(t *testing.T) {
	tmpl, dir := buildImage(t, image(t, v1.Config{}, layer(t, entry{name: "server", content: "a static program"})))
	has(t, dir, "server", "a static program")
	has(t, dir, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
	hasNot(t, dir, "etc/sudoers.d")
	hasNot(t, dir, "etc/shadow")
	if tmpl.Cwd != bothy.DefaultCwd {
		t.Errorf("cwd %s", tmpl.Cwd)
	}
}

func TestTheSameImageMakesTheSameDigest(t *testing.T) {
	one, _ := buildImage(t, small(t))
	two, _ := buildImage(t, small(t))
	if one.Digest != two.Digest {
		t.Errorf("%s and %s", one.Digest, two.Digest)
	}
}

func TestAnImageFromALayoutFolderAndFromATar(t *testing.T) {
	img := image(t, v1.Config{}, layer(t, entry{name: "bin/sh", content: "x"}))
	folder := t.TempDir()
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image(t, v1.Config{}, layer(t, entry{name: "wrong", content: "x"})), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: img})
	_, err := layout.Write(folder, index)
	must(t, err)
	file := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("tools:1")
	must(t, err)
	must(t, tarball.WriteToFile(file, tag, img))
	for _, path := range []string{folder, file} {
		l := NewLibrary(t.TempDir(), Options{})
		tmpl, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: path}, nil)
		must(t, err)
		dir := unpackImageFile(t, row(t, l, tmpl).RootFS)
		has(t, dir, "bin/sh", "x")
		hasNot(t, dir, "wrong")
	}
}

func TestImagesThatCannotBeFetched(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes.txt")
	must(t, os.WriteFile(notes, []byte("no tar"), 0o644))
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer locked.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	ref := push(t, small(t))
	for _, c := range []struct {
		image string
		code  bothy.Code
		word  string
	}{
		{"not a reference", bothy.CodeInvalid, "reference"},
		{"/not/there", bothy.CodeFileNotFound, "/not/there"},
		{notes, bothy.CodeTemplateInvalid, "docker save"},
		{t.TempDir(), bothy.CodeTemplateInvalid, "OCI layout"},
		{strings.TrimSuffix(ref, ":1") + ":2", bothy.CodeTemplateInvalid, "tools:2"},
		{strings.TrimPrefix(locked.URL, "http://") + "/x", bothy.CodeTemplateInvalid, "docker login"},
		{strings.TrimPrefix(gone.URL, "http://") + "/x", bothy.CodeTemplateInvalid, "cannot reach the registry"},
	} {
		t.Run(c.image, func(t *testing.T) {
			l := NewLibrary(t.TempDir(), Options{})
			_, err := l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: c.image}, nil)
			fails(t, err, c.code, c.word)
		})
	}
}

func TestAnImageForAnotherArchitectureIsRefused(t *testing.T) {
	img := small(t)
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.Architecture = "s390x"
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	l := NewLibrary(t.TempDir(), Options{})
	_, err = l.BuildTemplate(as(t, bothy.ScopeAdmin), bothy.TemplateBuild{Name: "tools", Image: push(t, img)}, nil)
	fails(t, err, bothy.CodeTemplateInvalid, "s390x")
}

// lying is a layer whose content does not match its digest.
type lying struct{ v1.Layer }

func (lying) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(make([]byte, 1024))), nil
}

func TestALayerWithOtherContentIsRefused(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	b, err := l.newBuild(bothy.TemplateRef{Name: "tools"}, nil)
	must(t, err)
	defer b.cleanUp()
	budget := int64(1 << 20)
	err = b.root.unpackLayer(t.Context(), lying{static.NewLayer([]byte("x"), types.DockerLayer)}, &budget, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("unpacked: %v", err)
	}
}
