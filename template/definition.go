package template

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// definition describes a built-in template. It is the format of the files in the folder
// templates; exactly one of Extends and Debian is set.
type definition struct {
	Description string `yaml:"description"`
	// Extends names the definition that this one extends.
	Extends   string            `yaml:"extends"`
	Debian    *debianBase       `yaml:"debian"`
	Python    *pythonPart       `yaml:"python"`
	Node      *nodePart         `yaml:"node"`
	Env       map[string]string `yaml:"env"`
	Languages []string          `yaml:"languages"`
	Warm      []string          `yaml:"warm,omitempty"` // of Languages
}

// debianBase is a Debian or Ubuntu release with packages.
type debianBase struct {
	Suite      string   `yaml:"suite"`
	Components string   `yaml:"components"`
	Keyring    string   `yaml:"keyring"` // a file next to the definition
	Packages   []string `yaml:"packages"`
}

// pythonPart is CPython in /usr/local.
type pythonPart struct {
	Bundle       string `yaml:"bundle"`       // a file of the share folder
	Pip          string `yaml:"pip"`          // the lock file of pip itself
	Requirements string `yaml:"requirements"` // the lock file of packages
}

// nodePart is Node in /usr/local, unpacked from a wheel.
type nodePart struct {
	Bundle       string `yaml:"bundle"`
	Requirements string `yaml:"requirements"`
	Release      string `yaml:"release"` // npm's lock file of a newer patch release
}

// readDefinition reads a definition with all that it extends merged in.
func readDefinition(files fs.FS, name string) (*definition, error) {
	data, err := fs.ReadFile(files, name+".yaml")
	if err != nil {
		return nil, err
	}
	d := &definition{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("template definition %s: %w", name, err)
	}
	if (d.Extends == "") == (d.Debian == nil) {
		return nil, fmt.Errorf("template definition %s: exactly one of extends and debian must be set", name)
	}
	if d.Extends == "" {
		return d, nil
	}
	base, err := readDefinition(files, d.Extends)
	if err != nil {
		return nil, fmt.Errorf("template definition %s extends %s: %w", name, d.Extends, err)
	}
	return d.over(base), nil
}

// finishing is the version of how a root file system is made from a definition. Increment it
// when bootstrap or finish change.
const finishing = 3

// recipe identifies everything that determines the result, except the versions of the
// distribution's packages.
func (d *definition) recipe(files fs.FS) (string, error) {
	sum := sha256.New()
	text, err := yaml.Marshal(d)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "%d %s", finishing, text)
	var locks []string
	if d.Python != nil {
		locks = append(locks, d.Python.Pip, d.Python.Requirements)
	}
	if d.Node != nil {
		locks = append(locks, d.Node.Requirements, d.Node.Release)
	}
	for _, lock := range locks {
		if lock == "" {
			continue
		}
		data, err := fs.ReadFile(files, lock)
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// over returns base with d's additions and changes.
func (d *definition) over(base *definition) *definition {
	m := *base
	m.Extends = ""
	m.Description = d.Description
	m.Env = maps.Clone(base.Env)
	if m.Env == nil {
		m.Env = map[string]string{}
	}
	maps.Copy(m.Env, d.Env)
	if d.Python != nil && base.Python != nil {
		p := *base.Python
		p.Requirements = d.Python.Requirements
		m.Python = &p
	}
	if d.Node != nil {
		m.Node = d.Node
	}
	if len(d.Languages) > 0 {
		m.Languages = slices.Clone(d.Languages)
	}
	if len(d.Warm) > 0 {
		m.Warm = slices.Clone(d.Warm)
	}
	return &m
}
