package netns

import "github.com/bothy-dev/bothy"

// MTU of the network device in bytes. Large, because every packet costs two trips
// through a user-space stack and the network device loses none.
const MTU = 65000

// GSOMaxSize is the maximum length, in bytes, of a packet that a sentry leaves to the host's
// kernel to segment.
const GSOMaxSize = 65536

// Config is the configuration of a new tap.
type Config struct {
	GuestMAC [6]byte
	MTU      int
}

// DefaultConfig is every sandbox's side of the network device.
func DefaultConfig() Config { return Config{GuestMAC: bothy.GuestMAC, MTU: MTU} }
