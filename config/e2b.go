package config

import "github.com/bothy-dev/bothy"

// E2B is the API for programs that were written for E2B.
type E2B struct {
	Enabled bool `yaml:"enabled"`
	// Templates maps E2B's template names to templates of this server.
	Templates map[string]string `yaml:"templates"`
	// PublicPorts lets anyone who knows the address use a port of a sandbox that was created
	// through this API, unless its creator closed it.
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
			return bothy.Errorf(bothy.CodeInvalid, "e2b.templates: %q stands for %q, which is not the name of a template", alias, name)
		}
	}
	return nil
}
