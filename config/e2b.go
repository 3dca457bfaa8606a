package config

import "github.com/bothy-dev/bothy"

// E2B is the door for programs that were written for E2B.
type E2B struct {
	Enabled bool `yaml:"enabled"`
	// Templates are E2B's names of templates, and what they are here.
	Templates map[string]string `yaml:"templates"`
	// PublicPorts lets everybody who knows the address see a port of a sandbox that was
	// made through this door, unless its maker shut it.
	PublicPorts bool `yaml:"public_ports"`
}

func defaultE2B() E2B {
	return E2B{
		Enabled: true, PublicPorts: true,
		Templates: map[string]string{"base": bothy.DefaultTemplate, "code-interpreter-v1": bothy.DefaultTemplate},
	}
}

func (e E2B) check() error {
	for alias, name := range e.Templates {
		if !bothy.ValidTemplateName(name) {
			return bothy.Errorf(bothy.CodeInvalid, "e2b.templates: %q stands for %q, which is no name of a template", alias, name)
		}
	}
	return nil
}
