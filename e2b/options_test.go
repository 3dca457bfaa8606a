package e2b

import (
	"reflect"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestOptions(t *testing.T) {
	var got bothy.SandboxCreate
	err := options(map[string]string{
		"bothy.on_host_loss": "resume", "bothy.checkpoint_seconds": "60", "bothy.host_labels": "zone=a,disk=nvme", "team": "red",
	}, &got)
	want := bothy.SandboxCreate{OnHostLoss: bothy.HostLossResume, CheckpointSeconds: 60, HostLabels: map[string]string{"zone": "a", "disk": "nvme"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for key, value := range map[string]string{
		"bothy.on_host_loss": "restart", "bothy.checkpoint_seconds": "60s", "bothy.host_labels": "zone", "bothy.on_hostloss": "pause",
		"bothy.e2b.template": "x", "bothy.openai.container": "true",
	} {
		err := options(map[string]string{key: value}, &bothy.SandboxCreate{})
		if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
}
