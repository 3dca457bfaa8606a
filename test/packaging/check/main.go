// Command check looks at what packaging/ holds. See test/packaging/run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	var err error
	switch what, args := os.Args[1], os.Args[2:]; what {
	case "kubernetes":
		err = kubernetes(args[0])
	case "schemas":
		err = schemas(args[0], args[1])
	case "start", "bothy.yaml":
		err = printConfig(args[0], what)
	case "nomad":
		err = nomad(args[0])
	case "compose":
		err = compose(args[0], args[1])
	default:
		err = fmt.Errorf("there is no %s", what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// objects decodes what helm template prints, and refuses keys that the API does not have.
func objects(path string) (all []runtime.Object, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for part := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue
		}
		if !scheme.Scheme.IsGroupRegistered(o.GroupVersionKind().Group) {
			all = append(all, &o) // of a CustomResourceDefinition
			continue
		}
		object, _, err := strict.Decode([]byte(part), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		all = append(all, object)
	}
	return all, nil
}

func kubernetes(path string) error {
	all, err := objects(path)
	if err != nil {
		return err
	}
	var set *appsv1.DaemonSet
	var service *corev1.Service
	for _, o := range all {
		switch v := o.(type) {
		case *appsv1.DaemonSet:
			set = v
		case *corev1.Service:
			service = v
		}
	}
	if set == nil || service == nil {
		return errors.New("there is no DaemonSet or no Service")
	}
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for _, p := range service.Spec.Ports {
		if !ports[p.TargetPort.StrVal] {
			return fmt.Errorf("the Service leads to %s, which the pods do not have", p.TargetPort.String())
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			return fmt.Errorf("there is no volume %s", m.Name)
		}
	}
	for k, v := range service.Spec.Selector {
		if set.Spec.Template.Labels[k] != v || set.Spec.Selector.MatchLabels[k] != v {
			return fmt.Errorf("the Service finds no pods by %s", k)
		}
	}
	if s := c.SecurityContext; s == nil || s.Privileged == nil || !*s.Privileged {
		return errors.New("the container is not privileged")
	}
	fmt.Printf("%s: %d objects\n", filepath.Base(path), len(all))
	return nil
}

// schemas writes a JSON schema of each kind that the chart has, for kubeconform.
func schemas(swagger, dir string) error {
	text, err := os.ReadFile(swagger)
	if err != nil {
		return err
	}
	var api struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &api); err != nil {
		return err
	}
	for _, d := range api.Definitions {
		if _, has := d["properties"]; has && d["additionalProperties"] == nil {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			delete(d, "type")
			d["oneOf"] = []any{map[string]any{"type": "string"}, map[string]any{"type": "integer"}}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for kind, name := range map[string]string{
		"daemonset": "io.k8s.api.apps.v1.DaemonSet", "configmap": "io.k8s.api.core.v1.ConfigMap", "service": "io.k8s.api.core.v1.Service",
		"poddisruptionbudget": "io.k8s.api.policy.v1beta1.PodDisruptionBudget",
	} {
		if api.Definitions[name] == nil {
			return fmt.Errorf("%s has no %s", swagger, name)
		}
		out, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + name, "definitions": api.Definitions})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, kind+".json"), out, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printConfig prints a file of the ConfigMap.
func printConfig(path, key string) error {
	all, err := objects(path)
	if err != nil {
		return err
	}
	for _, o := range all {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Data[key] != "" {
			fmt.Print(m.Data[key])
			return nil
		}
	}
	return fmt.Errorf("no ConfigMap has %s", key)
}

// nomad checks that a job can be parsed, and that it is one for each host.
func nomad(path string) error {
	f, d := hclparse.NewParser().ParseHCLFile(path)
	if d.HasErrors() {
		return d
	}
	for _, b := range f.Body.(*hclsyntax.Body).Blocks {
		if b.Type != "job" {
			continue
		}
		kind, d := b.Body.Attributes["type"].Expr.Value(nil)
		if d.HasErrors() || kind.AsString() != "system" {
			return fmt.Errorf("it is no system job: %v", kind)
		}
		fmt.Println("job", b.Labels[0])
		return nil
	}
	return errors.New("there is no job")
}

// compose loads the file as Compose does, and prints one of its configs.
func compose(path, config string) error {
	o, err := cli.NewProjectOptions([]string{path})
	if err != nil {
		return err
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(p.Services))
	if want := []string{"balancer", "one", "postgres", "s3", "three", "two"}; !slices.Equal(names, want) {
		return fmt.Errorf("the services are %v, not %v", names, want)
	}
	for _, name := range []string{"one", "two", "three"} {
		if s := p.Services[name]; !s.Privileged || s.Environment["NAME"] == nil || *s.Environment["NAME"] != name {
			return fmt.Errorf("the service %s is no host of that name", name)
		}
	}
	for name, s := range p.Services {
		for _, secret := range s.Secrets {
			if _, has := p.Secrets[secret.Source]; !has {
				return fmt.Errorf("the service %s has a secret %s that is nowhere", name, secret.Source)
			}
		}
	}
	if p.Configs[config].Content == "" {
		return fmt.Errorf("there is no config %s", config)
	}
	fmt.Print(p.Configs[config].Content)
	return nil
}
