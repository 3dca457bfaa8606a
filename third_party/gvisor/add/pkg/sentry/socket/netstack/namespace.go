package netstack

import "gvisor.dev/gvisor/pkg/sentry/inet"

// NetworkNamespace is where the socket was made.
func (s *sock) NetworkNamespace() *inet.Namespace { return s.namespace }
