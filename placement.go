package bothy

import (
	"fmt"
	"strings"
)

// HostLabelsKey is the key of metadata in which doors whose protocol has no host labels take
// them, in the form that ParseHostLabels reads.
const HostLabelsKey = "bothy.host_labels"

// ParseHostLabels reads labels in the form zone=a,disk=nvme.
func ParseHostLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, word := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(word), "=")
		if _, twice := labels[key]; !ok || key == "" || twice {
			return nil, fmt.Errorf("%q is not of the form zone=a,disk=nvme", text)
		}
		labels[key] = value
	}
	return labels, nil
}
