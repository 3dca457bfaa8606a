package cli

import (
	"io"
	"os"
	"strings"
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

func TestUnits(t *testing.T) {
	for text, want := range map[string]bothy.SandboxCreate{
		"--memory=512 --disk=2048 --timeout=90":   {MemoryMB: 512, DiskMB: 2048, TimeoutSeconds: new(90)},
		"--memory=512m --disk=2g --timeout=1m30s": {MemoryMB: 512, DiskMB: 2048, TimeoutSeconds: new(90)},
		"--memory=1.5GiB --disk=2GB --timeout=7d": {MemoryMB: 1536, DiskMB: 2048, TimeoutSeconds: new(7 * 24 * 3600)},
		"--idle=5m": {IdleSeconds: 300},
	} {
		var f createFlags
		flags := pflag.NewFlagSet("create", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}
		got, err := f.request(flags)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for _, text := range []string{"", "m", "-1", "1.5", "512q", "1e300g", "NaN"} {
		if err := new(mebibytes).Set(text); err == nil {
			t.Errorf("%q is taken for a size", text)
		}
	}
	for _, text := range []string{"", "d", "-1", "1e300", "NaN", "5 minutes"} {
		if err := new(period).Set(text); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

func TestTablesFitTheScreen(t *testing.T) {
	var b strings.Builder
	header := []string{"ID", "NAME", "STATE", "AGE"}
	rows := [][]string{{"sbx0123456789abcdef", "a name that is longer than there is room for", "running", "3m"}, {"sbx2", "-", "failed", "-"}}
	table(screen{Writer: &b, width: 43}, header, rows)
	const narrow = "ID                   NAME      STATE    AGE\n" +
		"sbx0123456789abcdef  a name …  running  3m\n" +
		"sbx2                 -         failed   -\n"
	if diff := cmp.Diff(narrow, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	table(screen{Writer: &b, color: true}, header, rows[1:])
	const colored = "\x1b[1mID\x1b[0m    \x1b[1mNAME\x1b[0m  \x1b[1mSTATE\x1b[0m   \x1b[1mAGE\x1b[0m\nsbx2  \x1b[2m-\x1b[0m     \x1b[31mfailed\x1b[0m  \x1b[2m-\x1b[0m\n"
	if diff := cmp.Diff(colored, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestDockersTerminal(t *testing.T) {
	for line, want := range map[string]string{
		"run -it --rm debian-12 bash":         "run --tty --rm debian-12 bash",
		"--url http://x run --name -it -ti x": "--url http://x run --name -it --tty x",
		"run debian-12 cmd -it":               "run debian-12 cmd -it",
		"run -e A=b -it -- cmd -it":           "run -e A=b --tty -- cmd -it",
		"exec -it web run -it":                "exec -it web run -it",
		"exec web -- run -it":                 "exec web -- run -it",
		"agent run -it":                       "agent run -it",
	} {
		root := newRoot(newApp(os.Stdin, io.Discard, io.Discard))
		if got := strings.Join(dockerWords(root, strings.Fields(line)), " "); got != want {
			t.Errorf("%q is read as %q, want %q", line, got, want)
		}
	}
}
