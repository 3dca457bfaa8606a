package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// The errors of the host commands say what to do.
func TestHostsCommandsSayWhatToDo(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	b := hosts[0].ownBox(t)
	run := func(s *server, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "BOTHY_URL="+s.URL(), "BOTHY_API_KEY="+s.Key, "BOTHY_HOME="+filepath.Join(t.TempDir(), "home"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	invited, err := hosts[0].Hosts.InviteHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(hosts[0], "host", "join", invited.Token); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	unknown, err := hosts[0].Hosts.InviteHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s    *server
		args string
		want []string
	}{
		{shared, "host ls", []string{"this server is not part of a cluster", "docs/cluster.md"}},
		{shared, "host add", []string{"this server is not part of a cluster", "docs/cluster.md"}},
		{shared, "host drain one", []string{"this server is not part of a cluster", "docs/cluster.md"}},
		{hosts[0], "host drain nowhere", []string{`there is no host "nowhere"`, "`bothy host ls` lists them"}},
		{hosts[0], "host cordon nowhere", []string{`there is no host "nowhere"`, "`bothy host ls` lists them"}},
		{hosts[0], "host rm nowhere", []string{`there is no host "nowhere"`, "`bothy host ls` lists them"}},
		{hosts[0], "host rm two", []string{"the host two is not dead", "bothy down"}},
		{hosts[0], "host drain", []string{"name one host, or give --self"}},
		{hosts[0], "host drain one --self", []string{"name one host, or give --self"}},
		{hosts[0], "move " + b.id + " nowhere", []string{`there is no host "nowhere"`, "`bothy host ls` lists them"}},
		{hosts[0], "move " + b.id + " one", []string{"is already on the host one", "Name another host"}},
		{hosts[0], "host join nonsense", []string{"this is not a valid join token", "bothy host add"}},
		{hosts[0], "host join " + unknown.Token[:len(unknown.Token)-8], []string{"this is not a valid join token", "whole"}},
		{hosts[0], "host join " + invited.Token, []string{"the token is unknown, already used, or expired", "Make another token there with `bothy host add`"}},
	} {
		out, err := run(c.s, strings.Fields(c.args)...)
		if err == nil {
			t.Errorf("%s succeeded: %s", c.args, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q: %s", c.args, want, out)
			}
		}
	}
	if _, err := hosts[0].Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	if out, err := run(hosts[0], "move", b.id, "two"); err == nil || !strings.Contains(out, "it is cordoned") || !strings.Contains(out, "`bothy host uncordon two`") {
		t.Errorf("a move to a cordoned host: %v: %s", err, out)
	}
	// A host cannot be renamed while it has sandboxes.
	one := hosts[0]
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	own := one.Settings
	one.Settings = strings.Replace(own, "name: one", "name: uno", 1)
	if err := one.Start(); err == nil {
		t.Error("a host started with another name")
	} else if log := strings.Join(one.Log(), "\n"); !strings.Contains(log, "this host is one in the cluster and owns 1 sandboxes, but cluster.name is uno") {
		t.Errorf("the log does not say why it ends:\n%s", log)
	}
	one.Settings = own
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	b.usable()
}

// A host whose first start fails is not listed. One that ran before is, with the reason, until it runs
// again.
func TestAHostDoesNotStart(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	program := must(testserver.Program())
	list := func() string {
		t.Helper()
		out, err := one.cli(t, program, "host", "ls")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	three := stoppedServer(t)
	three.NoPool, three.Store = true, one.Store
	three.Settings = strings.NewReplacer("name: one", "name: three", "listen: ", "listen: 127.0.0.1:0 # ").Replace(one.Settings)
	if err := three.Start(); err == nil {
		t.Fatal("a host started that has not joined")
	}
	if out := list(); strings.Contains(out, "three") || strings.Contains(out, "did not start") {
		t.Errorf("after a host did not join, the list is:\n%s", out)
	}
	b := one.boxOn(t, "two", smallest)
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	secrets := filepath.Join(two.Home, "secrets.key")
	own := must(os.ReadFile(secrets))
	if err := os.WriteFile(secrets, bytes.Repeat([]byte{7}, len(own)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := two.Start(); err == nil {
		t.Fatal("a host started with another key")
	}
	if out := list(); !strings.Contains(out, "host two: its server did not start: this host has not joined the cluster") || !strings.Contains(out, "secrets.key") {
		t.Errorf("after a host did not start, the list is:\n%s", out)
	}
	if err := os.WriteFile(secrets, own, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	b.usable()
	eventually(t, "it is listed as any", func() bool { return !strings.Contains(list(), "did not start") })
}
