package e2e

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/templates"
)

// installer is a package manager of a template: a command that prints its package index, and one that
// installs a small package as an ordinary user.
type installer struct{ archive, command string }

var (
	apt = installer{`grep -ohE 'https?://[^ ]+' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1`,
		"sudo apt-get -q update && sudo apt-get -q install --yes hello && hello"}
	pip = installer{"python -c 'from pip._internal.models.index import PyPI; print(PyPI.simple_url + \"/six/\")'",
		"pip install six && python -c 'import six; print(six.__version__)' && python -m venv env && env/bin/pip install six"}
	npm = installer{"echo $(npm config get registry)is-number",
		"npm install is-number && node -e 'if (!require(\"is-number\")(5)) process.exit(1)'"}
	// Programs that bundle Node, such as Playwright, need this library.
	nodes = installer{"", "/sbin/ldconfig -p | grep libatomic.so.1"}
)

// installers are the package managers of each built-in template.
var installers = map[string]map[string]installer{
	"python-3.12":      {"apt": apt, "pip": pip, "npm": npm, "foreign Node": nodes},
	"python-3.12-bare": {"apt": apt, "pip": pip, "foreign Node": nodes},
	"node-22":          {"apt": apt, "npm": npm, "foreign Node": nodes},
	"debian-12":        {"apt": apt, "foreign Node": nodes},
	"ubuntu-24.04":     {"apt": apt},
}

// Downloads may be slow.
const installs = 3 * hangs

func TestEachBuiltInTemplateInstallsPackages(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.NoPool = true
	s.Args = []string{"--trust-host-ca"}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range templates.Names() {
		if installers[name] == nil {
			t.Errorf("there are no installers for %s", name)
		}
	}
	for name, with := range installers {
		t.Run(name, func(t *testing.T) {
			if name != bothy.DefaultTemplate && os.Getenv("BOTHY_TEST_LONG") == "" {
				t.Skip("only `make test-all` installs in other templates than the default")
			}
			s.ensureTemplate(t, name)
			b := s.newBox(t, bothy.SandboxCreate{
				Template: name, MemoryMB: 1024, DiskMB: 2048, Network: &bothy.Network{Mode: bothy.NetworkRestricted},
			})
			for tool, i := range with {
				t.Run(tool, func(t *testing.T) { b.install(t, i) })
			}
		})
	}
}

// ensureTemplate builds a built-in template unless it exists.
func (s *server) ensureTemplate(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	_, err := s.Templates.Template(ctx, name)
	if bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
		_, err = s.Templates.BuildTemplate(ctx, bothy.TemplateBuild{Name: name}, func(bothy.BuildEvent) {})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *box) install(t *testing.T, i installer) {
	if i.archive != "" {
		reachable(t, b.sh("", i.archive))
	}
	ctx, cancel := context.WithTimeout(t.Context(), installs)
	defer cancel()
	r, err := b.s.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: i.command}})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 0 {
		t.Errorf("%s: exit code %d\n%s%s", i.command, r.ExitCode, r.Stdout, r.Stderr)
	}
}

// reachable skips a test if this host cannot reach the package index, since its sandboxes cannot either.
func reachable(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if !strings.HasPrefix(url, "http") {
		t.Fatalf("the package index is %q", url)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Skipf("%s cannot be reached from this host: %v", url, err)
	}
	answer.Body.Close()
	if answer.StatusCode >= http.StatusInternalServerError {
		t.Skipf("%s answers %s", url, answer.Status)
	}
}
