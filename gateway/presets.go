package gateway

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
	"go.yaml.in/yaml/v3"
)

//go:embed presets.yaml
var presetsFile []byte

// Presets are named lists of domain patterns. In them, unlike in a sandbox's
// own list, "*.example.org" covers example.org itself too.
type Presets map[string][]string

// DefaultPresets returns the presets that come with Bothy.
var DefaultPresets = sync.OnceValue(func() Presets {
	p, err := ParsePresets(presetsFile)
	if err != nil {
		panic("gateway: presets.yaml: " + err.Error())
	}
	return p
})

// ParsePresets reads presets as YAML: a map from names to lists of patterns.
func ParsePresets(data []byte) (Presets, error) {
	var p Presets
	if err := yaml.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	for _, name := range p.Names() {
		if err := p.addTo(&domains{}, name); err != nil {
			return nil, fmt.Errorf("preset %s: %w", name, err)
		}
	}
	return p, nil
}

// Names returns the sorted names of the presets.
func (p Presets) Names() []string {
	names := make([]string, 0, len(p))
	for name := range p {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// addTo adds the patterns of one preset to a set.
func (p Presets) addTo(d *domains, name string) error {
	patterns, ok := p[name]
	if !ok {
		return bothy.Errorf(bothy.CodeInvalid, "there is no preset %q", name).
			WithHint("The presets are %s.", strings.Join(p.Names(), ", "))
	}
	for _, pattern := range patterns {
		if err := d.add(pattern, "preset:"+name); err != nil {
			return err
		}
		if base, wild := strings.CutPrefix(pattern, "*."); wild {
			if err := d.add(base, "preset:"+name); err != nil {
				return err
			}
		}
	}
	return nil
}
