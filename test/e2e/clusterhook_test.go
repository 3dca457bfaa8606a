package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/test/testserver"
)

// The chart's preStop hook moves the sandboxes off its host, even if the name in the host's certificate
// resolves to another address and its authority is unknown.
func TestAHostWithTLSIsDrainedByItsHook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	selfSignedFor(t, dir, 1, "api.bothy.invalid")
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		if i == 1 {
			settings += "tls:\n  cert_file: " + dir + "/cert.pem\n  key_file: " + dir + "/key.pem\n"
		}
		return settings, store
	}, "one", "two")
	one, two := hosts[0], hosts[1]
	u, err := url.Parse(two.URL())
	if err != nil || u.Hostname() != "api.bothy.invalid" {
		t.Fatalf("the host's URL is %s: %v", two.URL(), err)
	}
	// The test's own client needs the right address for its clean-up.
	two.Client = client.New(two.URL(), two.Key, client.WithHTTPClient(&http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+u.Port())
		},
	}}))
	b := one.boxOn(t, "two", smallest)
	chart, err := os.ReadFile("../../packaging/helm/bothy/templates/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, hook, _ := strings.Cut(string(chart), `command: ["bothy", `)
	hook, _, ok := strings.Cut(hook, "]")
	if !ok {
		t.Fatal("the chart has no preStop hook")
	}
	args := strings.Split(strings.ReplaceAll(hook, `"`, ""), ", ")
	args[len(args)-1] = "60s" // replaces the chart's value
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	// As in a pod, the key is in the file that the server wrote at its first start.
	config := filepath.Join(t.TempDir(), "bothy")
	key, err := os.ReadFile(filepath.Join(two.Dir, "credentials.json"))
	if err == nil {
		err = os.Mkdir(config, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(config, "credentials.json"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BOTHY_HOME=" + two.Home, "XDG_CONFIG_HOME=" + filepath.Dir(config)}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bothy %s: %v: %s", strings.Join(args, " "), err, out)
	}
	if on := sandboxesOn(t, one); on["one"] != 1 || on["two"] != 0 {
		t.Errorf("the hosts have %v", on)
	}
	b.usable()
}
