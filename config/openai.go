package config

import "github.com/bothy-dev/bothy"

// OpenAI is the API for programs that were written for OpenAI's containers.
type OpenAI struct {
	Enabled bool `yaml:"enabled"`
	// Template is what containers start from.
	Template string `yaml:"template"`
}

func defaultOpenAI() OpenAI { return OpenAI{Enabled: true, Template: bothy.DefaultTemplate} }

func (o OpenAI) check() error {
	if !bothy.ValidTemplateName(o.Template) {
		return bothy.Errorf(bothy.CodeInvalid, "openai.template: %q is not the name of a template", o.Template)
	}
	return nil
}
