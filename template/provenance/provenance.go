// Package provenance describes how templates were made, in SLSA's format: an in-toto statement
// about the digest of a template's image.
package provenance

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	predicate = "https://slsa.dev/provenance/v1"
	// home begins the names of build types, and identifies the builder: any Bothy server.
	// Statements are not signed.
	home = "https://github.com/bothy-dev/bothy"
)

// Statement describes how a template was made. The same template gives the same text.
func Statement(t *store.Template) (json.RawMessage, error) {
	p, err := predicateOf(t.Origin)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	body := &structpb.Struct{}
	if err := protojson.Unmarshal(text, body); err != nil {
		return nil, err
	}
	s := &intoto.Statement{
		Type: intoto.StatementTypeUri, PredicateType: predicate, Predicate: body,
		Subject: []*intoto.ResourceDescriptor{{Name: t.Ref(), Digest: digest(t.Digest)}},
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("describe how %s was made: %w", t.Ref(), err)
	}
	if text, err = protojson.Marshal(s); err != nil {
		return nil, err
	}
	// The library deliberately randomises its whitespace, so encode again.
	var stable any
	if err := json.Unmarshal(text, &stable); err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(stable, "", "  ")
	return append(text, '\n'), err
}

func predicateOf(o *bothy.TemplateOrigin) (*slsa.Provenance, error) {
	parameters, err := fields(o.Parameters)
	if err != nil {
		return nil, err
	}
	settings, err := fields(o.Settings)
	if err != nil {
		return nil, err
	}
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: home + "/template/" + string(o.Kind) + "@v1", ExternalParameters: parameters, InternalParameters: settings,
		},
		RunDetails: &slsa.RunDetails{
			Builder: &slsa.Builder{Id: home}, Metadata: &slsa.BuildMetadata{InvocationId: o.ID, StartedOn: at(o.StartedAt), FinishedOn: at(o.EndedAt)},
		},
	}
	if o.Bothy != "" {
		p.RunDetails.Builder.Version = map[string]string{"bothy": o.Bothy}
	}
	for _, m := range o.Materials {
		p.BuildDefinition.ResolvedDependencies = append(p.BuildDefinition.ResolvedDependencies,
			&intoto.ResourceDescriptor{Name: m.Name, Digest: digest(m.Digest)})
	}
	return p, p.Validate()
}

// fields converts values to the library's types by way of JSON.
func fields(values map[string]any) (*structpb.Struct, error) {
	if len(values) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
}

func digest(of string) map[string]string {
	kind, hex, _ := strings.Cut(of, ":")
	return map[string]string{kind: hex}
}

func at(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
