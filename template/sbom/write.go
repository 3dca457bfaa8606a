package sbom

import (
	"fmt"
	"io"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/bothy-dev/bothy"
)

// Write writes a template's packages as bothy.SBOMSPDX or bothy.SBOMCycloneDX. The same
// template gives the same text.
func Write(w io.Writer, t *bothy.Template, list []Package, format string) error {
	switch format {
	case bothy.SBOMSPDX:
		return writeSPDX(w, t, list)
	case bothy.SBOMCycloneDX:
		return writeCycloneDX(w, t, list)
	}
	return bothy.Errorf(bothy.CodeInvalid, "there is no format %q", format).WithHint("Give %s or %s.", bothy.SBOMSPDX, bothy.SBOMCycloneDX)
}

func writeCycloneDX(w io.Writer, t *bothy.Template, list []Package) error {
	b := cyclonedx.NewBOM()
	b.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.Digest)).String()
	whole := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeContainer, BOMRef: t.Digest, Name: t.Name, Version: t.TagOrDefault(), Description: t.Description,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: strings.TrimPrefix(t.Digest, "sha256:")}},
	}
	b.Metadata = &cyclonedx.Metadata{Timestamp: t.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), Component: &whole}
	components := []cyclonedx.Component{}
	for i, p := range list {
		c := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: fmt.Sprintf("%d-%s", i, p.Name), Name: p.Name, Version: p.Version, PackageURL: p.URL(),
			Evidence: &cyclonedx.Evidence{Occurrences: &[]cyclonedx.EvidenceOccurrence{{Location: p.Path}}},
		}
		if p.License != "" {
			c.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{Name: p.License}}}
		}
		components = append(components, c)
	}
	b.Components = &components
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(b)
}

// noAssertion is SPDX's value for unknown information.
const noAssertion = "NOASSERTION"

func writeSPDX(w io.Writer, t *bothy.Template, list []Package) error {
	const root = common.ElementID("Template")
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: t.Ref(),
		DocumentNamespace: "urn:bothy:template:" + t.Digest,
		CreationInfo: &spdx.CreationInfo{
			Created: t.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), Creators: []common.Creator{{CreatorType: "Tool", Creator: "bothy"}},
		},
		Packages: []*spdx.Package{{
			PackageName: t.Name, PackageVersion: t.TagOrDefault(), PackageSPDXIdentifier: root, PackageDownloadLocation: noAssertion, PrimaryPackagePurpose: "CONTAINER",
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: strings.TrimPrefix(t.Digest, "sha256:")}},
		}},
		Relationships: []*spdx.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(root)), Relationship: "DESCRIBES"}},
	}
	for i, p := range list {
		id := common.ElementID(fmt.Sprintf("Package-%d", i+1))
		declared := noAssertion
		comments := ""
		if p.License != "" { // which may not be a valid SPDX expression
			comments = "The package says: " + p.License
		}
		d.Packages = append(d.Packages, &spdx.Package{
			PackageName: p.Name, PackageVersion: p.Version, PackageSPDXIdentifier: id, PackageDownloadLocation: noAssertion,
			PackageLicenseDeclared: declared, PackageLicenseComments: comments, PackageSourceInfo: "found in " + p.Path,
			PackageExternalReferences: []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: p.URL()}},
		})
		d.Relationships = append(d.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(root)), RefB: common.MakeDocElementID("", string(id)), Relationship: "CONTAINS",
		})
	}
	return spdxjson.Write(d, w, spdxjson.Indent("  "))
}
