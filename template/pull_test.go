package template

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// exported is a small template in a file, as a folder of templates had it, and the key that signed it.
func exported(t *testing.T) (file string, made *store.Template, lib *Library, keys []ed25519.PublicKey, private ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	lib = library(t, Options{Version: "1.0"}, "tools")
	img := image(t, config("GREETING=hello", "PATH=/usr/bin:/bin"), layer(t, entry{name: "new", content: strings.Repeat("content", 1000)}))
	_, err = lib.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: "team/app:v2", Image: push(t, img)}, nil)
	must(t, err)
	file = filepath.Join(t.TempDir(), "app.tar")
	made, _, err = lib.Export(t.Context(), "team/app:v2", file, private, nil)
	must(t, err)
	return file, made, lib, []ed25519.PublicKey{public}, private
}

func TestAnExportedTemplateCanBePulled(t *testing.T) {
	file, made, lib, keys, private := exported(t)
	again := filepath.Join(t.TempDir(), "again.tar")
	_, _, err := lib.Export(t.Context(), "team/app:v2", again, private, nil)
	must(t, err)
	one, err := os.ReadFile(file)
	must(t, err)
	two, err := os.ReadFile(again)
	must(t, err)
	if !bytes.Equal(one, two) {
		t.Error("two exports of a template have other bytes")
	}
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	ref := RegistryPrefix + strings.TrimPrefix(s.URL, "http://") + "/templates/app"
	_, digest, err := lib.Export(t.Context(), "team/app:v2", ref+":v2", private, nil)
	must(t, err)

	for _, from := range []string{file, ref + ":v2", ref + "@" + digest} {
		dir := filepath.Join(t.TempDir(), "templates")
		there := NewLibrary(dir, Options{Version: "2.0"})
		got, already, err := there.Pull(t.Context(), from, PullOptions{Keys: keys, Digest: made.Digest})
		must(t, err)
		found, err := there.Lookup("team/app:v2")
		must(t, err)
		if already || got.Digest != made.Digest || found.Env["GREETING"] != "hello" || listing(t, found) != listing(t, made) {
			t.Errorf("%s: pulled %+v", from, found)
		}
		if found.Origin == nil || found.Origin.Bothy != "1.0" {
			t.Errorf("%s: the template says of its origin: %+v", from, found.Origin)
		}
		_, already, err = there.Pull(t.Context(), from, PullOptions{Keys: keys})
		must(t, err)
		if !already {
			t.Errorf("%s: a second pull unpacked it again", from)
		}
		// A damaged image of the same size is healed.
		f, err := os.OpenFile(found.RootFS, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("damage"), found.SizeBytes/2)
		must(t, err)
		must(t, f.Close())
		_, already, err = there.Pull(t.Context(), from, PullOptions{Keys: keys})
		must(t, err)
		must(t, Verify(t.Context(), found))
		if already {
			t.Errorf("%s: a damaged template counts as there", from)
		}
	}
}

func TestWhatIsNotAnExportedTemplateIsNotPulled(t *testing.T) {
	file, made, _, keys, private := exported(t)
	other, _, err := ed25519.GenerateKey(nil)
	must(t, err)
	parts := partsOf(t, file)
	text, err := os.ReadFile(file)
	must(t, err)
	bad := func(change func(p *pieces)) string {
		p, of := parts, *parts.all.Template
		p.all.Template = &of
		change(&p)
		return p.write(t, private)
	}
	cut := filepath.Join(t.TempDir(), "cut.tar")
	must(t, os.WriteFile(cut, text[:len(text)-3000], 0o600))
	one := filepath.Join(t.TempDir(), "altered.tar")
	altered := bytes.Replace(text, parts.config[len(parts.config)/2:len(parts.config)/2+8], []byte("AAAAAAAA"), 1)
	must(t, os.WriteFile(one, altered, 0o600))
	many := filepath.Join(t.TempDir(), "many.tar")
	writeTar(t, many, func(w *tar.Writer) {
		for i := range maxParcelEntries + 1 {
			must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("x", i+1), Mode: 0o644}))
		}
	})
	link := filepath.Join(t.TempDir(), "link.tar")
	writeTar(t, link, func(w *tar.Writer) {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json", Linkname: "/etc/passwd"}))
	})

	signed := PullOptions{Keys: keys}
	for name, c := range map[string]struct {
		file string
		with PullOptions
		says string
	}{
		"no key":          {file, PullOptions{}, "no key"},
		"another key":     {file, PullOptions{Keys: []ed25519.PublicKey{other}}, "not signed by the key"},
		"another digest":  {file, PullOptions{Keys: keys, Digest: "sha256:" + strings.Repeat("0", 64)}, "not sha256:000"},
		"unsigned":        {bad(func(p *pieces) { p.unsigned = true }), signed, "is not signed"},
		"truncated":       {cut, signed, "its end is missing"},
		"altered":         {one, signed, "does not match its digest"},
		"many entries":    {many, signed, "32"},
		"a link":          {link, signed, "is not a file"},
		"a newer format":  {bad(func(p *pieces) { p.all.Format = 2 }), signed, "has format 2"},
		"another system":  {bad(func(p *pieces) { p.all.Architecture = "riscv64" }), signed, "is for linux/riscv64"},
		"a foreign name":  {bad(func(p *pieces) { p.all.Template.Name = "../x" }), signed, "is not the name"},
		"no template":     {bad(func(p *pieces) { p.all.Template = nil }), signed, "describes no template"},
		"processes":       {bad(func(p *pieces) { p.all.Template.Memory = &bothy.TemplateMemory{} }), signed, "do not travel"},
		"a huge template": {bad(func(p *pieces) { p.all.Template.SizeBytes = maxImageBytes + 1 }), signed, "cannot be"},
		"a bomb":          {bad(func(p *pieces) { p.image = zeros(t, made.SizeBytes+1) }), signed, "is damaged"},
		"another image":   {bad(func(p *pieces) { p.image = zeros(t, made.SizeBytes) }), signed, "is damaged"},
		"a short image":   {bad(func(p *pieces) { p.image = p.image[:len(p.image)/2] }), signed, "is damaged"},
		"no file":         {filepath.Join(t.TempDir(), "none"), signed, "cannot be read"},
		"a folder":        {t.TempDir(), signed, "is not a file"},
		"a key":           {"/dev/null", signed, "is not a file"},
	} {
		dir := filepath.Join(t.TempDir(), "templates")
		there := NewLibrary(dir, Options{})
		_, _, err := there.Pull(t.Context(), c.file, c.with)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, and it should say %q", name, err, c.says)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*")); len(left) > 0 {
			t.Errorf("%s: there is %q", name, left)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".build", "*")); len(left) > 0 {
			t.Errorf("%s: a rest is %q", name, left)
		}
	}
	there := NewLibrary(filepath.Join(t.TempDir(), "templates"), Options{})
	_, _, err = there.Pull(t.Context(), bad(func(p *pieces) { p.unsigned = true }), PullOptions{Unsigned: true})
	must(t, err)
}

func TestKeysOfTemplates(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		must(t, err)
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	secret := write("private", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(public)
	open := write("public", "PUBLIC KEY", der, err)
	if keys, err := ReadPublicKeys(open); err != nil || len(keys) != 1 || !keys[0].Equal(public) {
		t.Errorf("%v, %v", keys, err)
	}
	if key, err := ReadPrivateKey(secret); err != nil || !key.Equal(private) {
		t.Errorf("%v, %v", key, err)
	}
	_, err = ReadPublicKeys(secret)
	fails(t, err, bothy.CodeInvalid, "public Ed25519")
	_, err = ReadPrivateKey(open)
	fails(t, err, bothy.CodeInvalid, "private Ed25519")
	_, err = ReadPublicKeys(filepath.Join(dir, "none"))
	fails(t, err, bothy.CodeInvalid, "cannot be read")
}

// pieces are what an exported template consists of.
type pieces struct {
	config, image []byte
	all           traveller
	unsigned      bool
}

func partsOf(t *testing.T, file string) (p pieces) {
	t.Helper()
	of, err := openFileParcel(t.Context(), file)
	must(t, err)
	defer of.Close()
	m, err := v1.ParseManifest(bytes.NewReader(of.manifest()))
	must(t, err)
	p.config, err = of.config(t.Context(), m.Config)
	must(t, err)
	r, err := of.image(t.Context(), m.Layers[0])
	must(t, err)
	p.image, err = io.ReadAll(r)
	must(t, err)
	var e envelope
	must(t, json.Unmarshal(p.config, &e))
	must(t, json.Unmarshal(e.Payload, &p.all))
	return p
}

// write writes the parts as a file whose signature and digests are right.
func (p *pieces) write(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	payload, err := json.Marshal(p.all)
	must(t, err)
	e := &envelope{PayloadType: travelPayload, Payload: payload}
	if !p.unsigned {
		e.Signatures = []signature{{Sig: ed25519.Sign(key, e.authenticated())}}
	}
	config, err := json.Marshal(e)
	must(t, err)
	packed := filepath.Join(t.TempDir(), "packed")
	must(t, os.WriteFile(packed, p.image, 0o600))
	art := &artifact{config: config, packed: packed, layer: v1.Descriptor{MediaType: travelImage, Size: int64(len(p.image)), Digest: hashOf(p.image)}}
	of := p.all.Template
	if of == nil {
		of = &store.Template{}
	}
	must(t, art.describe(of))
	file := filepath.Join(t.TempDir(), "made.tar")
	must(t, art.writeFile(t.Context(), file))
	return file
}

// zeros is a short file of so many bytes, if it is unpacked.
func zeros(t *testing.T, n int64) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	return w.EncodeAll(make([]byte, n), nil)
}

func writeTar(t *testing.T, file string, fill func(*tar.Writer)) {
	t.Helper()
	f, err := os.Create(file)
	must(t, err)
	defer f.Close()
	w := tar.NewWriter(f)
	fill(w)
	must(t, w.Close())
}
