package e2b

import (
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// The prefix of this server's own metadata, and the keys in which a client gives options of a
// sandbox that E2B does not have. They stay in the metadata.
const (
	ownPrefix        = "bothy."
	optionHostLoss   = ownPrefix + "on_host_loss"
	optionCheckpoint = ownPrefix + "checkpoint_seconds"
)

// options applies the options in the metadata, and refuses other keys of this server's own, so
// that a misspelt option is not ignored.
func options(metadata map[string]string, req *bothy.SandboxCreate) (err error) {
	for key, value := range metadata {
		switch {
		case key == bothy.HostLabelsKey:
			if req.HostLabels, err = bothy.ParseHostLabels(value); err != nil {
				return invalid("metadata: %s: %v", key, err)
			}
		case key == optionHostLoss:
			switch req.OnHostLoss = bothy.OnHostLoss(value); req.OnHostLoss {
			case bothy.HostLossPause, bothy.HostLossResume, bothy.HostLossFail:
			default:
				return invalid("metadata: %s is %q; give pause, resume or fail", key, value)
			}
		case key == optionCheckpoint:
			if req.CheckpointSeconds, err = strconv.Atoi(value); err != nil {
				return invalid("metadata: %s is %q; give a number of seconds", key, value)
			}
		case strings.HasPrefix(key, ownPrefix):
			return invalid("metadata: %s is not an option, and keys that begin with %q are this server's own; the options are %s, %s and %s",
				key, ownPrefix, optionHostLoss, optionCheckpoint, bothy.HostLabelsKey)
		}
	}
	return nil
}
