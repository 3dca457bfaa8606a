package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/bothy-dev/bothy"
)

func TestSecretsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("TOKEN", "swordfish")
	var f createFlags
	flags := pflag.NewFlagSet("create", pflag.ContinueOnError)
	f.add(flags)
	if err := flags.Parse([]string{"--secret", "TOKEN@api.example.com,*.example.org"}); err != nil {
		t.Fatal(err)
	}
	req, err := f.request(flags)
	if err != nil {
		t.Fatal(err)
	}
	want := []bothy.Secret{{Name: "TOKEN", Value: "swordfish", Hosts: []string{"api.example.com", "*.example.org"}}}
	if diff := cmp.Diff(want, req.Secrets); diff != "" {
		t.Error(diff)
	}
}

func TestTimeoutIsSentOnlyIfItWasGiven(t *testing.T) {
	for line, want := range map[string]*int{"": nil, "--timeout=0": new(int)} {
		var f createFlags
		flags := pflag.NewFlagSet("create", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse([]string{line}); err != nil {
			t.Fatal(err)
		}
		req, err := f.request(flags)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, req.TimeoutSeconds); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}

func TestCheckpointFlag(t *testing.T) {
	for text, want := range map[string]int{"60s": 60, "60": 60, "2m": 120, "1h": 3600, "0": 0, "0s": 0} {
		var f createFlags
		flags := pflag.NewFlagSet("create", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse([]string{"--checkpoint", text, "--on-host-loss", "resume"}); err != nil {
			t.Fatal(err)
		}
		req, err := f.request(flags)
		if err != nil || req.CheckpointSeconds != want || req.OnHostLoss != bothy.HostLossResume {
			t.Errorf("%s: %d %s %v", text, req.CheckpointSeconds, req.OnHostLoss, err)
		}
	}
	for _, text := range []string{"", "x", "1.5s", "-1", "500ms"} {
		var i interval
		if i.Set(text) == nil {
			t.Errorf("%q is taken for an interval", text)
		}
	}
}
