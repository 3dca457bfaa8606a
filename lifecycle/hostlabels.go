package lifecycle

import "github.com/bothy-dev/bothy"

// maxHostLabels limits the host labels of a sandbox.
const maxHostLabels = 16

// checkHostLabels returns an error if this host does not have the labels.
func (s *Service) checkHostLabels(labels map[string]string) error {
	switch {
	case len(labels) == 0:
		return nil
	case !s.o.Cluster.Shared():
		return bothy.Errorf(bothy.CodeUnsupported, "host_labels requires a cluster, and this server is not part of a cluster").
			WithHint("Omit host_labels. See docs/cluster.md for how to make several hosts a cluster.")
	case len(labels) > maxHostLabels:
		return invalid("host_labels has %d labels", len(labels)).WithHint("Give at most %d.", maxHostLabels)
	}
	own := s.o.Cluster.Labels()
	for key, value := range labels {
		if has, ok := own[key]; !ok || has != value {
			return bothy.Errorf(bothy.CodeCapacity, "no host with the label %s=%s accepts the sandbox", key, value).
				WithHint("Try again in a moment, or ask for other labels: the operator can list them with `bothy host ls`.")
		}
	}
	return nil
}
