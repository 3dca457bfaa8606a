package template

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// statement parses a statement with the libraries that consumers use, and validates it.
func statement(t *testing.T, text []byte) (*intoto.Statement, *slsa.Provenance) {
	t.Helper()
	s, p := &intoto.Statement{}, &slsa.Provenance{}
	must(t, protojson.Unmarshal(text, s))
	must(t, s.Validate())
	body, err := protojson.Marshal(s.GetPredicate())
	must(t, err)
	must(t, protojson.Unmarshal(body, p))
	must(t, p.Validate())
	return s, p
}

func TestProvenanceOfAnImportedImage(t *testing.T) {
	img := small(t)
	ref := push(t, img)
	l := NewLibrary(t.TempDir(), Options{Version: "1.2.3"})
	ctx := as(t, bothy.ScopeAdmin)
	tmpl, err := l.BuildTemplate(ctx, bothy.TemplateBuild{Name: "tools", Image: ref}, nil)
	must(t, err)
	text, err := l.TemplateProvenance(ctx, "tools")
	must(t, err)
	again, err := NewLibrary(l.dir, Options{}).TemplateProvenance(ctx, "tools")
	must(t, err)
	if string(text) != string(again) {
		t.Errorf("another server's statement is\n%s\nwant\n%s", again, text)
	}
	s, p := statement(t, text)
	if subject := s.GetSubject()[0]; subject.GetName() != "tools" || "sha256:"+subject.GetDigest()["sha256"] != tmpl.Digest {
		t.Errorf("the subject is %v", subject)
	}
	digest, err := img.Digest()
	must(t, err)
	from := p.GetBuildDefinition().GetResolvedDependencies()
	if len(from) != 1 || from[0].GetName() != ref || from[0].GetDigest()["sha256"] != digest.Hex {
		t.Errorf("the materials are %v", from)
	}
	run := p.GetRunDetails()
	if run.GetBuilder().GetVersion()["bothy"] != "1.2.3" || run.GetMetadata().GetFinishedOn().AsTime().Before(run.GetMetadata().GetStartedOn().AsTime()) {
		t.Errorf("the builder is %v", run)
	}
	// The REST API does not show it.
	shown, err := json.Marshal(tmpl)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(shown, &fields))
	if _, ok := fields["origin"]; ok {
		t.Errorf("the template shows its origin: %s", shown)
	}
}

// Templates of earlier versions have no recorded provenance: for built-in ones it is their recipe, and
// for others there is none.
func TestProvenanceOfEarlierVersions(t *testing.T) {
	l := NewLibrary(t.TempDir(), Options{})
	ctx := as(t, bothy.ScopeAdmin)
	for name, recipe := range map[string]string{"old": "", "shipped": "abc"} {
		made, err := l.BuildTemplate(ctx, bothy.TemplateBuild{Name: name, Image: push(t, small(t))}, nil)
		must(t, err)
		tmpl := row(t, l, made)
		tmpl.Origin, tmpl.Recipe = nil, recipe
		must(t, writeManifest(filepath.Dir(tmpl.RootFS), tmpl))
	}
	_, err := l.TemplateProvenance(ctx, "old")
	fails(t, err, bothy.CodeNotFound, "has no record of how", "again")
	text, err := l.TemplateProvenance(ctx, "shipped")
	must(t, err)
	if _, p := statement(t, text); p.GetBuildDefinition().GetExternalParameters().AsMap()["recipe"] != "abc" {
		t.Errorf("the statement is %s", text)
	}
	_, err = l.TemplateProvenance(ctx, "nothing")
	fails(t, err, bothy.CodeTemplateNotFound)
}
