package sbom

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	spdxjson "github.com/spdx/tools-golang/json"
	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
)

var day = time.Unix(1_700_000_000, 0)

func rich(t *testing.T) *tree.Tree {
	t.Helper()
	files := tree.New(day)
	for name, text := range map[string]string{
		"etc/os-release": "NAME=\"Debian\"\nID=debian\nVERSION_ID=\"12\"\n",
		"var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2.15-2+b7\nDescription: a shell\n that runs\n commands\n\n" +
			"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\nnonsense\n\nPackage: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.2.13\n",
		"usr/lib/python3/dist-packages/Some_Thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\r\nName: Some_Thing\r\nVersion: 1.0\r\nLicense: MIT\r\n\r\nName: no, this is the description\r\n",
		"opt/x.egg-info/PKG-INFO":                                 "Name: x\nVersion: 2\nLicense: a\n long\n text\n",
		"opt/METADATA":                                            "Name: not a package\n",
		"usr/lib/node_modules/npm/package.json":                   `{"name":"npm","version":"10.1.0","license":"Artistic-2.0"}`,
		"usr/lib/node_modules/npm/node_modules/@a/b/package.json": `{"name":"@a/b","version":"0.1.0","license":{"type":"MIT"}}`,
		"usr/lib/node_modules/npm/lib/package.json":               `{"name":"inner","version":"9"}`,
		"usr/lib/node_modules/broken/package.json":                `{"name":`,
		"home/user/package.json":                                  `{"name":"mine","version":"1"}`,
		"var/lib/dpkg/status.d/base":                              "Package: base-files\nVersion: 12\nArchitecture: all\n",
	} {
		if _, err := files.Mkdir(name[:strings.LastIndexByte(name, '/')], day); err != nil {
			t.Fatal(err)
		}
		if err := files.Put(name, &tree.Node{Mode: unix.S_IFREG | 0o644, Time: day, Data: tree.Text(text)}); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestPackages(t *testing.T) {
	list, err := Packages(t.Context(), rich(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, p.URL()+" "+p.License)
	}
	want := []string{
		"pkg:deb/debian/base-files@12?arch=all&distro=debian-12 ",
		"pkg:deb/debian/bash@5.2.15-2%2Bb7?arch=amd64&distro=debian-12 ",
		"pkg:deb/debian/zlib1g@1:1.2.13?arch=amd64&distro=debian-12 ",
		"pkg:npm/%40a/b@0.1.0 ",
		"pkg:npm/npm@10.1.0 Artistic-2.0",
		"pkg:pypi/some-thing@1.0 MIT",
		"pkg:pypi/x@2 a long text",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFormats(t *testing.T) {
	list, err := Packages(t.Context(), rich(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	made := &bothy.Template{Name: "team/app", Tag: "v3", Digest: "sha256:" + strings.Repeat("ab", 32), CreatedAt: day, Description: "an app"}
	write := func(format string) []byte {
		t.Helper()
		var one, two bytes.Buffer
		if err := Write(&one, made, list, format); err != nil {
			t.Fatal(err)
		}
		if err := Write(&two, made, list, format); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("%s differs from time to time, %v", format, err)
		}
		return one.Bytes()
	}
	var b cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(write(bothy.SBOMCycloneDX)), cyclonedx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	if len(*b.Components) != len(list) || b.Metadata.Component.Name != "team/app" || (*b.Components)[1].PackageURL != list[1].URL() {
		t.Errorf("CycloneDX has %+v", b)
	}
	d, err := spdxjson.Read(bytes.NewReader(write(bothy.SBOMSPDX)))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Packages) != len(list)+1 || len(d.Relationships) != len(list)+1 || d.Packages[1].PackageExternalReferences[0].Locator != list[0].URL() {
		t.Errorf("SPDX has %d packages and %d relationships", len(d.Packages), len(d.Relationships))
	}
	if err := Write(&bytes.Buffer{}, made, list, "word"); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Error(err)
	}
}
