package cli

import (
	"context"
	"slices"
	"testing"

	"github.com/bothy-dev/bothy"
)

// cluster is one of four hosts.
type cluster struct{ bothy.ClusterService }

func (cluster) Hosts(context.Context) ([]bothy.ClusterHost, error) {
	return []bothy.ClusterHost{
		{Name: "one", State: bothy.HostUp, Self: true}, {Name: "two", State: bothy.HostCordoned},
		{Name: "three", State: bothy.HostDraining}, {Name: "four", State: bothy.HostDead},
	}, nil
}

// Each host command completes only hosts to which it applies.
func TestHostsAreCompleted(t *testing.T) {
	for command, want := range map[string][]string{
		"bothy host cordon":   {"one\tup"},
		"bothy host uncordon": {"two\tcordoned", "three\tdraining"},
		"bothy host drain":    {"one\tup", "two\tcordoned", "three\tdraining"},
		"bothy host rm":       {"four\tdead"},
		"bothy move":          {"one\tup"},
	} {
		from := arguments[command].from
		if len(from) == 0 {
			t.Errorf("%s: nothing completes its arguments", command)
			continue
		}
		got, err := from[len(from)-1](t.Context(), &session{hosts: cluster{}})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", command, got, err)
		}
	}
}
