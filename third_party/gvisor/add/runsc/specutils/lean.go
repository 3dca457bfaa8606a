package specutils

import (
	"bytes"
	"encoding/json"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"gvisor.dev/gvisor/pkg/tuning"
)

// leanSpec has the fields that most specs use. Before the json package reads a struct, it
// prepares all types that it refers to, used or not.
type leanSpec struct {
	Version     string            `json:"ociVersion"`
	Process     *leanProcess      `json:"process"`
	Root        *specs.Root       `json:"root"`
	Hostname    string            `json:"hostname"`
	Mounts      []leanMount       `json:"mounts"`
	Linux       *leanLinux        `json:"linux"`
	Annotations map[string]string `json:"annotations"`
}

type leanProcess struct {
	User         leanUser                 `json:"user"`
	Args         []string                 `json:"args"`
	Env          []string                 `json:"env"`
	Cwd          string                   `json:"cwd"`
	Capabilities *specs.LinuxCapabilities `json:"capabilities"`
	Rlimits      []specs.POSIXRlimit      `json:"rlimits"`
}

type leanUser struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

type leanMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

type leanLinux struct {
	Namespaces []specs.LinuxNamespace `json:"namespaces"`
}

// decodeSpec decodes a spec as decoder would, and faster if it has only the fields of leanSpec.
func decodeSpec(text []byte, decoder *json.Decoder, spec *specs.Spec) error {
	var lean leanSpec
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if !tuning.On("plain-spec") || d.Decode(&lean) != nil {
		return decoder.Decode(spec)
	}
	*spec = specs.Spec{Version: lean.Version, Root: lean.Root, Hostname: lean.Hostname, Annotations: lean.Annotations}
	if p := lean.Process; p != nil {
		spec.Process = &specs.Process{
			User: specs.User{UID: p.User.UID, GID: p.User.GID}, Args: p.Args, Env: p.Env, Cwd: p.Cwd,
			Capabilities: p.Capabilities, Rlimits: p.Rlimits,
		}
	}
	for _, m := range lean.Mounts {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	if lean.Linux != nil {
		spec.Linux = &specs.Linux{Namespaces: lean.Linux.Namespaces}
	}
	return nil
}
