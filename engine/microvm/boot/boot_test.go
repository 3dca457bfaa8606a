package boot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"

	"github.com/bothy-dev/bothy"
)

// pvhNote is the note by which a VMM finds the kernel's entry.
func pvhNote() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 4)
	b = binary.LittleEndian.AppendUint32(b, 8)
	b = binary.LittleEndian.AppendUint32(b, 18)
	return append(append(b, "Xen\x00"...), make([]byte, 8)...)
}

// elfKernel is an ELF file with one segment of notes followed by text.
func elfKernel(machine elf.Machine, notes []byte, text string) []byte {
	var b bytes.Buffer
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	_ = binary.Write(&b, binary.LittleEndian, header)
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{
		Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(len(notes)), Memsz: uint64(len(notes)),
	})
	b.Write(notes)
	b.WriteString(text)
	return b.Bytes()
}

func goodKernel() []byte { return elfKernel(elf.EM_X86_64, pvhNote(), strings.Repeat("code ", 50_000)) }

// bzImageOf wraps a payload in the header of Linux on x86.
func bzImageOf(payload []byte, version string) []byte {
	const sects = 1
	code := (sects + 1) * 512
	b := make([]byte, code, code+len(payload))
	b[setupSects] = sects
	copy(b[headerMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[versionOffset:], 0x300-0x200)
	copy(b[0x300:], version+" (somebody) #1 SMP\x00")
	binary.LittleEndian.PutUint32(b[payloadOffset:], 0)
	binary.LittleEndian.PutUint32(b[payloadLength:], uint32(len(payload)))
	return append(b, payload...)
}

// withSize appends the size of the whole, as the kernel's makefiles do.
func withSize(packed, whole []byte) []byte {
	return binary.LittleEndian.AppendUint32(packed, uint32(len(whole)))
}

func lz4Legacy(t *testing.T, data []byte) []byte {
	t.Helper()
	out := []byte("\x02\x21\x4c\x18")
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 8<<20)
		block := make([]byte, lz4.CompressBlockBound(n))
		size, err := lz4.CompressBlock(rest[:n], block, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(size)), block[:size]...)
		rest = rest[n:]
	}
	return withSize(out, data)
}

// fakeModule is an object file with only a module's metadata.
func fakeModule(t *testing.T, fields ...string) []byte {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	info := strings.Join(fields, "\x00") + "\x00"
	var b bytes.Buffer
	header := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		Shoff: uint64(64 + len(info) + len(names)),
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	_ = binary.Write(&b, binary.LittleEndian, header)
	b.WriteString(info + names)
	for _, s := range []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(info)), Addralign: 1},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(info)), Size: uint64(len(names)), Addralign: 1},
	} {
		_ = binary.Write(&b, binary.LittleEndian, s)
	}
	return b.Bytes()
}

// kernelModules are the modules of a kernel with ext4 built in.
func kernelModules(t *testing.T) map[string][]byte {
	m := func(fields ...string) []byte { return fakeModule(t, fields...) }
	return map[string][]byte{
		"drivers/virtio/virtio_ring.ko":        m("depends="),
		"drivers/virtio/virtio.ko":             m("license=GPL", "depends=virtio_ring"),
		"drivers/virtio/virtio_mmio.ko":        m("depends=virtio,virtio_ring"),
		"drivers/block/virtio_blk.ko":          m("depends=virtio,virtio_ring"),
		"net/core/failover.ko":                 m("depends="),
		"drivers/net/net_failover.ko":          m("depends=failover"),
		"drivers/net/virtio_net.ko":            m("depends=virtio_ring,virtio,net_failover"),
		"drivers/char/virtio_console.ko":       m("depends=virtio"),
		"drivers/char/hw_random/virtio-rng.ko": m("depends=virtio"),
		"lib/libcrc32c.ko":                     m("softdep=pre: crc32c post: other", "depends="),
		"fs/erofs/erofs.ko":                    m("depends=libcrc32c"),
		"fs/overlayfs/overlay.ko":              m("depends="),
		"sound/noise.ko":                       m("depends=virtio"),
	}
}

const fakeVersion = "6.1.0-1-test"

type debFile struct {
	name string
	data []byte
}

func debFiles(t *testing.T) []debFile {
	base := "./lib/modules/" + fakeVersion + "/"
	list := []debFile{
		{"./boot/vmlinuz-" + fakeVersion, bzImageOf(lz4Legacy(t, goodKernel()), fakeVersion)},
		{base + "modules.builtin", []byte("kernel/fs/ext4/ext4.ko\n")},
	}
	for name, data := range kernelModules(t) {
		list = append(list, debFile{base + "kernel/" + name, data})
	}
	return list
}

// deb makes a Debian package with its files packed by xz.
func deb(t *testing.T, files []debFile) []byte {
	t.Helper()
	var packed bytes.Buffer
	z, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString(arMagic)
	member := func(name string, data []byte) {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", name, 0, 0, 0, 0o100644, len(data))
		out.Write(data)
		if len(data)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar.xz", []byte("odd"))
	member("data.tar.xz", packed.Bytes())
	return out.Bytes()
}

func put(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// archive lists what is in an initramfs.
func archive(t *testing.T, path string) (files map[string]string, order []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files = map[string]string{}
	for r := cpio.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, strings.Fields(files["modules"])
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
}

func TestAPackageBecomesAKernelAndAnInitramfs(t *testing.T) {
	dir := t.TempDir()
	o := Options{Kernel: put(t, "linux.deb", deb(t, debFiles(t))), Init: put(t, "init", []byte("first program"))}
	image, err := Find(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if image.Version != fakeVersion || image.Source != o.Kernel {
		t.Errorf("version %q of %q", image.Version, image.Source)
	}
	if got, _ := os.ReadFile(image.Kernel); !bytes.Equal(got, goodKernel()) {
		t.Errorf("the kernel has %d bytes, want %d", len(got), len(goodKernel()))
	}
	if want, err := fileDigest(image.Kernel, image.Initramfs, image.Modules); err != nil || image.Digest != want {
		t.Errorf("digest %s, want %s", image.Digest, want)
	}
	files, order := archive(t, image.Initramfs)
	if files["init"] != "first program" {
		t.Errorf("/init is %q", files["init"])
	}
	at := map[string]int{}
	for i, line := range order {
		at[strings.TrimSuffix(filepath.Base(line), ".ko")] = i + 1
		if files[strings.TrimPrefix(line, "/")] == "" {
			t.Errorf("%s is listed for loading but missing", line)
		}
	}
	for _, pair := range [][2]string{
		{"virtio_ring", "virtio"}, {"virtio", "virtio_mmio"}, {"failover", "net_failover"}, {"net_failover", "virtio_net"},
		{"libcrc32c", "erofs"}, {"virtio", "virtio_rng"},
	} {
		if at[pair[0]] == 0 || at[pair[0]] > at[pair[1]] {
			t.Errorf("%s is not loaded before %s: %v", pair[0], pair[1], order)
		}
	}
	if at["noise"] != 0 || at["ext4"] != 0 {
		t.Errorf("unneeded or built-in modules are included: %v", order)
	}
}

func TestAnImageIsMadeOnceAndTheSameEverywhere(t *testing.T) {
	o := Options{Kernel: put(t, "linux.deb", deb(t, debFiles(t))), Init: put(t, "init", []byte("first program"))}
	var said []string
	o.Progress = func(s string) { said = append(said, s) }
	dir := t.TempDir()
	first, err := Find(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Prepare(t.Context(), dir, o)
	if err != nil || again != first || len(said) != 1 {
		t.Errorf("the second time: %+v, %v; want %+v; output %q", again, err, first, said)
	}
	elsewhere, err := Find(t.Context(), t.TempDir(), o)
	if err != nil || elsewhere.Digest != first.Digest {
		t.Errorf("elsewhere the digest is %s, %v; want %s", elsewhere.Digest, err, first.Digest)
	}
	o.Init = put(t, "init", []byte("another program"))
	other, err := Find(t.Context(), dir, o)
	if err != nil || other.Digest == first.Digest || other.Kernel != first.Kernel {
		t.Errorf("with another program: %+v, %v", other, err)
	}
	if _, err := os.Stat(first.Initramfs); err != nil {
		t.Errorf("the older one must stay for machines that need it: %v", err)
	}
}

func TestManyAtOnceMakeOneImage(t *testing.T) {
	dir := t.TempDir()
	o := Options{Kernel: put(t, "linux.deb", deb(t, debFiles(t))), Init: put(t, "init", []byte("first program"))}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Find(t.Context(), dir, o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "[a-z]*"))
	if err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v; want one kernel and one image", left, err)
	}
	if torn, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(torn) != 0 {
		t.Errorf("left behind: %v", torn)
	}
}

func TestATornKernelIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	o := Options{Kernel: put(t, "linux.deb", deb(t, debFiles(t))), Init: put(t, "init", []byte("first program"))}
	image, err := Find(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image.Kernel, 7); err != nil {
		t.Fatal(err)
	}
	if image, err = Find(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(image.Kernel); !bytes.Equal(got, goodKernel()) {
		t.Errorf("the kernel has %d bytes", len(got))
	}
}

func TestWithoutAKernelFindNamesTheCure(t *testing.T) {
	_, err := Find(t.Context(), t.TempDir(), Options{Init: put(t, "init", []byte("x"))})
	if e := bothy.AsError(err); e.Code != bothy.CodeEngineMissing || !strings.Contains(e.Hint, "doctor --fix") {
		t.Errorf("got %+v", e)
	}
}

// fakeApt replaces apt's programs with fakes that offer one package, and returns the folder that controls
// them.
func fakeApt(t *testing.T) string {
	t.Helper()
	bin, world := t.TempDir(), t.TempDir()
	for name, script := range map[string]string{
		"apt-get": `#!/bin/sh
			echo "$@" >>` + world + `/said
			case "$2" in
			update) [ ! -e ` + world + `/offline ] || { echo "E: no network" >&2; exit 100; }; touch ` + world + `/lists;;
			download) cp ` + world + `/linux.deb ./linux_1_amd64.deb;;
			esac`,
		"apt-cache": `#!/bin/sh
			[ -e ` + world + `/lists ] || { echo "E: No packages found" >&2; exit 100; }
			echo "Package: linux-image-cloud-amd64"; echo "Version: $(cat ` + world + `/version)"
			echo "Depends: linux-image-6.1.0-1-cloud-amd64 (= $(cat ` + world + `/version)), other"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	offer(t, world, "6.1.1-1", deb(t, debFiles(t)))
	return world
}

func offer(t *testing.T, world, version string, data []byte) {
	t.Helper()
	for name, content := range map[string][]byte{"version": []byte(version), "linux.deb": data} {
		if err := os.WriteFile(filepath.Join(world, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDebiansKernelIsFetchedOnceAndUpdatedWhenAsked(t *testing.T) {
	world, dir := fakeApt(t), t.TempDir()
	o := Options{Init: put(t, "init", []byte("first program"))}
	first, err := Prepare(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if first.Version != fakeVersion || first.Source != "linux-image-6.1.0-1-cloud-amd64 6.1.1-1" {
		t.Errorf("got %+v", first)
	}
	said, _ := os.ReadFile(filepath.Join(world, "said"))
	if want := "-q update\n-q download linux-image-6.1.0-1-cloud-amd64=6.1.1-1\n"; string(said) != want {
		t.Errorf("apt-get was called with %q, want %q", said, want)
	}
	for _, get := range []func() (Image, error){
		func() (Image, error) { return Prepare(t.Context(), dir, o) }, func() (Image, error) { return Find(t.Context(), dir, o) },
	} {
		if again, err := get(); err != nil || again != first {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	if more, _ := os.ReadFile(filepath.Join(world, "said")); len(more) != len(said) {
		t.Errorf("apt-get was called again: %q", more)
	}

	// A newer kernel is fetched on request only.
	files := append(debFiles(t), debFile{"./usr/share/doc/news", []byte("newer")})
	offer(t, world, "6.1.2-1", deb(t, files))
	o.Update = true
	newer, err := Prepare(t.Context(), dir, o)
	if err != nil || newer.Source != "linux-image-6.1.0-1-cloud-amd64 6.1.2-1" || newer.Kernel == first.Kernel {
		t.Errorf("got %+v, %v", newer, err)
	}
	if !exists(first.Kernel) {
		t.Error("the older one must stay for a while")
	}
	// Files that have not been used for long are removed.
	long := time.Now().Add(-2 * keptFor["kernel-*"])
	if err := os.Chtimes(filepath.Dir(first.Kernel), long, long); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(world, "offline"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// A host without a network keeps what it has.
	if kept, err := Prepare(t.Context(), dir, o); err != nil || kept != newer {
		t.Errorf("got %+v, %v", kept, err)
	}
	if exists(first.Kernel) || !exists(newer.Kernel) {
		t.Error("the older one must go, and the newer one stay")
	}
}

// TestUnusedImagesAreRemoved lets servers of three releases share a folder.
func TestUnusedImagesAreRemoved(t *testing.T) {
	fakeApt(t)
	dir := t.TempDir()
	prepare := func(init string) Image {
		t.Helper()
		image, err := Prepare(t.Context(), dir, Options{Init: put(t, "init", []byte(init))})
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	old, asked := prepare("release 1"), prepare("release 2")
	long := time.Now().Add(-2 * keptFor["kernel-*"])
	half := filepath.Join(dir, ".new-1")
	if err := os.Mkdir(half, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(old.Initramfs), filepath.Dir(asked.Initramfs), filepath.Dir(asked.Kernel), half} {
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	if again := prepare("release 2"); again != asked {
		t.Errorf("it was made again: %+v", again)
	}
	if !exists(asked.Initramfs) || !exists(asked.Kernel) || exists(old.Initramfs) || exists(half) {
		t.Error("requested images must stay, and the others be removed")
	}
	// The kernel was fetched long ago, but is still the latest.
	if err := os.Chtimes(filepath.Dir(asked.Kernel), long, long); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	prune(dir)
	unlock()
	if !exists(asked.Kernel) {
		t.Error("the Debian kernel that was fetched last was removed")
	}
	if third := prepare("release 1"); third != old || !exists(third.Initramfs) {
		t.Errorf("a removed image was rebuilt as %+v, and was %+v", third, old)
	}
}

func TestAHostThatIsCutOffSaysSo(t *testing.T) {
	world := fakeApt(t)
	if err := os.WriteFile(filepath.Join(world, "offline"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := Prepare(t.Context(), dir, Options{Init: put(t, "init", []byte("x"))})
	if e := bothy.AsError(err); e.Code != bothy.CodeEngineMissing || !strings.Contains(e.Detail, "no network") {
		t.Errorf("got %+v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKernelsOfEveryCompression(t *testing.T) {
	whole := goodKernel()
	var gz, xzed bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, _ = g.Write(whole)
	g.Close()
	x, err := xz.NewWriter(&xzed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = x.Write(whole)
	x.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var streamed bytes.Buffer // as `zstd` from a pipe: without the size in the frame
	s, err := zstd.NewWriter(&streamed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(s, bytes.NewReader(whole))
	s.Close()
	for name, payload := range map[string][]byte{
		"lz4": lz4Legacy(t, whole), "gzip": withSize(gz.Bytes(), whole), "xz": withSize(xzed.Bytes(), whole),
		"zstd": withSize(z.EncodeAll(whole, nil), whole), "zstd stream": withSize(streamed.Bytes(), whole), "none": whole,
	} {
		image, version, err := openImage(bzImageOf(payload, "5.15.0-custom"))
		if err != nil || version != "5.15.0-custom" || !bytes.Equal(image, whole) {
			t.Errorf("%s: %d bytes of version %q, %v", name, len(image), version, err)
		}
	}
}

func TestABareELFKernelTellsItsVersion(t *testing.T) {
	data := elfKernel(elf.EM_X86_64, pvhNote(), "Linux version 6.12.9-own (a@b) (gcc)")
	_, version, err := openImage(data)
	if err != nil || version != "6.12.9-own" {
		t.Errorf("version %q, %v", version, err)
	}
}

func TestWhatCannotBootIsRefused(t *testing.T) {
	whole := goodKernel()
	good := lz4Legacy(t, whole)
	for want, data := range map[string][]byte{
		"neither a bzImage nor": []byte("#!/bin/sh\necho no kernel\n"),
		"cut short":             bzImageOf(good, "1")[:2000],
		"compression is not":    bzImageOf([]byte("what is this"), "1"),
		"unpack the kernel":     bzImageOf(append(bytes.Clone(good[:len(good)-20]), good[len(good)-4:]...), "1"),
		"not an ELF file":       bzImageOf(lz4Legacy(t, []byte("this is text and not a kernel")), "1"),
		"not for x86-64":        elfKernel(elf.EM_AARCH64, pvhNote(), "Linux version 1 ("),
		"no entry for PVH":      elfKernel(elf.EM_X86_64, make([]byte, 24), "Linux version 1 ("),
		"contains no version":   whole,
	} {
		path := put(t, "vmlinuz", data)
		_, err := Find(t.Context(), t.TempDir(), Options{Kernel: path, Modules: t.TempDir(), Init: path})
		e := bothy.AsError(err)
		if e == nil || e.Code != bothy.CodeEngineMissing || !strings.Contains(e.Detail, want) || e.Hint == "" {
			t.Errorf("want %q, got %+v", want, e)
		}
	}
	_, err := Find(t.Context(), t.TempDir(), Options{Kernel: "/does/not/exist"})
	if e := bothy.AsError(err); e.Code != bothy.CodeEngineMissing || !strings.Contains(e.Hint, "engine.microvm.kernel") {
		t.Errorf("got %+v", e)
	}
}

func TestDamagedPackagesAreRefused(t *testing.T) {
	good := deb(t, debFiles(t))
	init := put(t, "init", []byte("x"))
	for name, data := range map[string][]byte{
		"cut short": good[:len(good)/2], "without files": good[:72], "without a kernel": deb(t, debFiles(t)[1:]), "only magic": []byte(arMagic),
	} {
		dir := t.TempDir()
		_, err := Find(t.Context(), dir, Options{Kernel: put(t, "linux.deb", data), Init: init})
		if got := bothy.ErrorCode(err); got != bothy.CodeEngineMissing {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "[a-z]*")); len(left) != 0 {
			t.Errorf("%s: left behind %v", name, left)
		}
	}
}

func TestAKernelWithoutAModuleIsRefused(t *testing.T) {
	var files []debFile
	for _, f := range debFiles(t) {
		if !strings.HasSuffix(f.name, "erofs.ko") {
			files = append(files, f)
		}
	}
	_, err := Find(t.Context(), t.TempDir(), Options{Kernel: put(t, "linux.deb", deb(t, files)), Init: put(t, "init", []byte("x"))})
	if err == nil || !strings.Contains(err.Error(), "without the module erofs") {
		t.Errorf("got %v", err)
	}
}

func TestModulesBesideABareKernel(t *testing.T) {
	modules := t.TempDir()
	for name, data := range kernelModules(t) {
		path := filepath.Join(modules, "kernel", name+".xz")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		z, err := xz.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(data)
		z.Close()
		if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(modules, "modules.builtin"), []byte("kernel/fs/ext4/ext4.ko\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Kernel: put(t, "vmlinuz", bzImageOf(lz4Legacy(t, goodKernel()), "6.6.6")), Modules: modules, Init: put(t, "init", []byte("x")),
	}
	image, err := Find(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	if files, order := archive(t, image.Initramfs); len(order) != 12 || !strings.HasPrefix(files["lib/modules/erofs.ko"], elf.ELFMAG) {
		t.Errorf("modules: %v", order)
	}
	// A kernel with everything built in needs no modules.
	o.Modules = filepath.Join(modules, "none")
	if image, err = Find(t.Context(), t.TempDir(), o); err != nil {
		t.Fatal(err)
	}
	if _, order := archive(t, image.Initramfs); len(order) != 0 {
		t.Errorf("modules: %v", order)
	}
}

func FuzzOpenImage(f *testing.F) {
	f.Add(goodKernel())
	f.Add(bzImageOf(goodKernel(), "1"))
	f.Add(bzImageOf([]byte("\x02\x21\x4c\x18aaaabbbb"), "1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if image, version, err := openImage(data); err == nil && (len(image) == 0 || version == "") {
			t.Errorf("%d bytes of version %q", len(image), version)
		}
	})
}
