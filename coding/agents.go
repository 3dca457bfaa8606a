// Package coding describes coding agents: how to start them, and what they need. The packages
// below run them: acp for editors, folder for the files that they work on.
package coding

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bothy-dev/bothy"
)

//go:embed agents.yaml
var known []byte

// Agent is a coding agent.
type Agent struct {
	Name     string            `yaml:"-"`
	Template string            `yaml:"template"`
	ACP      []string          `yaml:"acp"`
	Run      []string          `yaml:"run"`
	Continue []string          `yaml:"continue"`
	Output   string            `yaml:"output"`
	Secrets  []Secret          `yaml:"secrets"`
	Domains  []string          `yaml:"domains"`
	Env      map[string]string `yaml:"env"`
	MemoryMB int               `yaml:"memory_mb"`
	DiskMB   int               `yaml:"disk_mb"`
}

// Secret is a credential that an agent uses without seeing it.
type Secret struct {
	Name   string   `yaml:"name"`
	Hosts  []string `yaml:"hosts"`
	Header string   `yaml:"header"`
}

// Agents returns the agents by name: those that Bothy knows, and those of a file, which take
// precedence. An empty name means no file.
func Agents(file string) (map[string]*Agent, error) {
	all, err := parse(known)
	if err != nil || file == "" {
		return all, err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the agents: %w", err)
	}
	more, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	maps.Copy(all, more)
	return all, nil
}

func parse(b []byte) (map[string]*Agent, error) {
	all := map[string]*Agent{}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	for name, a := range all {
		if a == nil || a.Template == "" || len(a.ACP)+len(a.Run) == 0 {
			return nil, fmt.Errorf("the agent %s needs a template, and one of acp and run", name)
		}
		if a.Output != "" && a.Output != "claude" {
			return nil, fmt.Errorf("the agent %s: output is claude or nothing, and not %q", name, a.Output)
		}
		a.Name = name
		for _, s := range a.Secrets {
			if s.Name == "" || len(s.Hosts) == 0 {
				return nil, fmt.Errorf("a secret of the agent %s needs a name and hosts", name)
			}
		}
	}
	return all, nil
}

// Names lists agents for a person.
func Names(all map[string]*Agent) string {
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

// Task is the command that does a task, or continues an earlier one if again is set.
func (a *Agent) Task(task string, again bool) ([]string, error) {
	command := a.Run
	if again && len(a.Continue) > 0 {
		command = a.Continue
	}
	if len(command) == 0 {
		return nil, fmt.Errorf("the agent %s has no command for a single task: use it from an editor, with bothy acp", a.Name)
	}
	command = slices.Clone(command)
	for i, word := range command {
		command[i] = strings.ReplaceAll(word, "{task}", task)
	}
	return command, nil
}

// errNoSecret is wrapped with the variables that would do.
var errNoSecret = errors.New("no credential is set")

// Apply adds what the agent needs to a request for a sandbox. Existing fields take
// precedence. Credentials come from lookup, which is os.LookupEnv.
func (a *Agent) Apply(req *bothy.SandboxCreate, lookup func(string) (string, bool)) error {
	if req.Template == "" && req.SnapshotID == "" {
		req.Template = a.Template
	}
	if req.Size == "" && req.MemoryMB == 0 {
		req.MemoryMB = a.MemoryMB
	}
	if req.Size == "" && req.DiskMB == 0 {
		req.DiskMB = a.DiskMB
	}
	env := maps.Clone(a.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	domains := slices.Clone(a.Domains)
	for _, s := range req.Secrets {
		domains = append(domains, s.Hosts...)
	}
	if len(a.Secrets) > 0 && !a.holds(req.Secrets) {
		found := false
		for _, s := range a.Secrets {
			if value, ok := lookup(s.Name); ok && value != "" && !found {
				found = true
				req.Secrets = append(req.Secrets, bothy.Secret{Name: s.Name, Value: value, Hosts: s.Hosts, Header: s.Header})
				domains = append(domains, s.Hosts...)
			}
		}
		if !found {
			return fmt.Errorf("%w for the agent %s: set %s", errNoSecret, a.Name, a.secretNames())
		}
	}
	if len(domains) > 0 {
		req.Network = reach(req.Network, domains)
	}
	return nil
}

// holds reports whether the caller has provided one of the agent's credentials, for other hosts.
func (a *Agent) holds(secrets []bothy.Secret) bool {
	return slices.ContainsFunc(secrets, func(s bothy.Secret) bool {
		return slices.ContainsFunc(a.Secrets, func(own Secret) bool { return own.Name == s.Name })
	})
}

func (a *Agent) secretNames() string {
	names := make([]string, len(a.Secrets))
	for i, s := range a.Secrets {
		names[i] = s.Name
	}
	return strings.Join(names, " or ")
}

// reach allows a network to reach additional domains.
func reach(n *bothy.Network, domains []string) *bothy.Network {
	more := bothy.Network{Mode: bothy.NetworkRestricted}
	switch {
	case n == nil || n.Mode == bothy.NetworkOff:
	case n.Mode == bothy.NetworkOpen:
		return n
	default:
		more = *n
		if n.IsPlain() { // all presets, and only an object can have more
			more.Presets = []string{"pypi", "npm", "github", "go", "debian", "crates", "llm"}
		}
	}
	for _, d := range domains {
		if !slices.Contains(more.AllowDomains, d) {
			more.AllowDomains = append(more.AllowDomains, d)
		}
	}
	return &more
}
