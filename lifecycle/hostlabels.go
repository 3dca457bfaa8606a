package lifecycle

import "github.com/bothy-dev/bothy"

// maxHostLabels bounds how many labels of hosts a sandbox asks for.
const maxHostLabels = 16

// checkHostLabels refuses a sandbox that is for other hosts than this.
func (s *Service) checkHostLabels(labels map[string]string) error {
	switch {
	case len(labels) == 0:
		return nil
	case s.o.HostLabels == nil:
		return bothy.Errorf(bothy.CodeUnsupported, "host_labels is for the hosts of a cluster, and this server is alone").
			WithHint("Leave host_labels out. docs/cluster.md says how several hosts become a cluster.")
	case len(labels) > maxHostLabels:
		return invalid("host_labels has %d labels", len(labels)).WithHint("Give at most %d.", maxHostLabels)
	}
	for key, value := range labels {
		if has, ok := s.o.HostLabels[key]; !ok || has != value {
			return bothy.Errorf(bothy.CodeCapacity, "no host with the label %s=%s takes the sandbox", key, value).
				WithHint("Try again in a moment, or ask for other labels: the operator sees them by `bothy host ls`.")
		}
	}
	return nil
}
