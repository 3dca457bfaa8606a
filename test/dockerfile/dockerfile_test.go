// Package dockerfile builds the same Dockerfiles with Docker and with Bothy, and compares
// what a program sees in a container and in a sandbox: files with their modes, owners,
// times and links, the environment, the folder and the user.
package dockerfile

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/template/tree"
	"github.com/bothy-dev/bothy/test/testserver"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"
)

var (
	shared *testserver.Server
	docker *lab.Docker
	probe  string
)

func TestMain(m *testing.M) {
	if os.Getenv("BOTHY_E2E") == "" {
		return
	}
	var l *lab.Lab
	code := testserver.Main(m, 1, func(s *testserver.Server) { shared = s })
	if l = dockers; l != nil {
		l.Close()
	}
	os.Exit(code)
}

var dockers *lab.Lab

// base is the template that the Dockerfiles start from, under the same name in Docker.
const base = testserver.Template

// setUp starts Docker with the base's files as an image.
func setUp(t *testing.T) {
	t.Helper()
	if docker != nil {
		return
	}
	if _, err := exec.LookPath("/usr/bin/docker"); err != nil {
		t.Skip("skipped: Docker's packages are not installed: apt-get install docker.io")
	}
	t.Setenv("PATH", "/usr/bin:"+os.Getenv("PATH"))
	var err error
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := testserver.Templates()
	if err != nil {
		t.Fatal(err)
	}
	if dockers, err = lab.New(lab.Options{Bothy: program, Templates: dir, Template: base}); err != nil {
		t.Fatal(err)
	}
	if docker, err = dockers.Docker(t.Context()); err != nil {
		t.Fatal(err)
	}
	tmpl, err := shared.Templates.Template(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	importBase(t, filepath.Join(dir, base, strings.TrimPrefix(tmpl.Digest, "sha256:"), "rootfs.erofs"), tmpl)
	probe = filepath.Join(t.TempDir(), "probe")
	keep, err := os.MkdirTemp(dockers.Dir, "probe-")
	if err != nil {
		t.Fatal(err)
	}
	probe = filepath.Join(keep, "probe")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", probe, "./probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v: %s", err, out)
	}
}

// importBase gives Docker an image of a template's files and settings.
func importBase(t *testing.T, image string, tmpl *bothy.Template) {
	t.Helper()
	files, err := tree.Read(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dockers.Dir, "base.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.WriteLayer(tree.New(time.Time{}), f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	args := []string{"import", "--change", "WORKDIR " + tmpl.Cwd}
	for k, v := range tmpl.Env {
		args = append(args, "--change", fmt.Sprintf("ENV %s=%s", k, v))
	}
	if _, err := docker.Output(append(args, path, base)...); err != nil {
		t.Fatal(err)
	}
}

// skipped are what containers and sandboxes have of their own, and what every template
// has that an image need not have.
var skipped = []string{
	"/proc", "/sys", "/dev", "/.bothy", "/probe", "/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/etc/mtab",
	"$HOSTNAME", "$LOGNAME", "$USER", "$SHELL", "$PWD", "$BOTHY_COMMAND_ID", "$BOTHY_SANDBOX_ID",
	"$SSL_CERT_FILE", "$PIP_CERT", "$REQUESTS_CA_BUNDLE", "$CURL_CA_BUNDLE", "$GIT_SSL_CAINFO", "$NODE_EXTRA_CA_CERTS", "$CARGO_HTTP_CAINFO", "$AWS_CA_BUNDLE",
	"/run/.bothy-boot-id", "/run/bothy", "/run/lock", "/etc/ssl/certs/ca-certificates.crt",
}

// added are what Bothy adds to images that have nothing.
var added = []string{"/etc", "/home", "/root", "/run", "/tmp", "/var", "/workspace"}

// few are the cases that run by default: RUN, and users.
const few = "01 05"

func TestDockerfiles(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("there are no cases", err)
	}
	if os.Getenv("BOTHY_DOCKERFILES") != "all" {
		cases = slices.DeleteFunc(cases, func(path string) bool { return !strings.Contains(few, filepath.Base(path)[:2]) })
	}
	setUp(t)
	t.Setenv("DOCKER_BUILDKIT", "1")
	t.Setenv("BUILDKIT_PROGRESS", "plain")
	for i, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { compare(t, path, fmt.Sprintf("case%d", i)) })
	}
}

func compare(t *testing.T, path, name string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := lay(a, dir); err != nil {
		t.Fatal(err)
	}
	var args []string
	for line := range strings.Lines(string(a.Comment)) {
		if rest, ok := strings.CutPrefix(line, "args: "); ok {
			args = strings.Fields(rest)
		}
	}
	newer := time.Now().Unix() - 1
	if out, err := docker.Output(append(append([]string{"build", "--network=none", "-t", name}, args...), dir)...); err != nil {
		t.Fatalf("Docker does not build it: %v: %s", err, out)
	}
	skip := slices.Clone(skipped)
	text, _ := os.ReadFile(filepath.Join(dir, "Dockerfile"))
	if bytes.Contains(text, []byte("FROM scratch")) {
		skip = append(append(skip, added...), "$LANG")
	}
	if !bytes.Contains(text, []byte("\nUSER ")) { // then it is that of this server's templates
		skip = append(skip, "$HOME", "$user")
	}
	want := inDocker(t, name, newer, skip)
	got := inBothy(t, name, dir, args, newer, skip)
	diff := compareLines(want, got)
	if len(diff) > 0 {
		t.Errorf("- is Docker, + is Bothy:\n%s", strings.Join(diff[:min(len(diff), 60)], "\n"))
	}
}

// lay writes the files of a case. Names may have a mode, a link or a time behind them.
func lay(a *txtar.Archive, dir string) error {
	old := time.Unix(1_600_000_000, 0)
	for _, f := range a.Files {
		name, mods, _ := strings.Cut(f.Name, " ")
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		var link string
		for _, m := range strings.Fields(mods) {
			if to, ok := strings.CutPrefix(m, "->"); ok {
				link = to
			} else if _, err := fmt.Sscanf(m, "%o", &mode); err != nil {
				return fmt.Errorf("%s: %q: %w", f.Name, m, err)
			}
		}
		if link != "" {
			at := unix.NsecToTimeval(old.UnixNano())
			if err := errors.Join(os.Symlink(link, path), unix.Lutimes(path, []unix.Timeval{at, at})); err != nil {
				return err
			}
			continue
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			if err := os.Chmod(path, mode|0o111); err != nil {
				return err
			}
			continue
		}
		data := f.Data
		if strings.HasSuffix(name, ".tar") {
			data = pack(data)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		if err := os.Chtimes(path, old, old); err != nil {
			return err
		}
	}
	return nil
}

// pack makes a tar with a file for each line.
func pack(lines []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name := range strings.FieldsSeq(string(lines)) {
		h := &tar.Header{Name: name, Mode: 0o640, Uid: 12, Gid: 34, ModTime: time.Unix(1_500_000_000, 0), Size: int64(len(name)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size, h.Mode = tar.TypeDir, 0, 0o750
		}
		_ = w.WriteHeader(h)
		_, _ = io.WriteString(w, name[:h.Size])
	}
	w.Close()
	return b.Bytes()
}

func probeEnv(newer int64, skip []string) map[string]string {
	return map[string]string{"PROBE_NEWER": fmt.Sprint(newer), "PROBE_SKIP": strings.Join(skip, " "), "PROBE_BASE": "1735689600"}
}

func inDocker(t *testing.T, image string, newer int64, skip []string) []string {
	t.Helper()
	args := []string{"run", "--rm", "--network=none", "-v", probe + ":/probe:ro", "--entrypoint", "/probe"}
	for k, v := range probeEnv(newer, skip) {
		args = append(args, "-e", k+"="+v)
	}
	who, err := docker.Output(append(slices.Clone(args), image)...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := docker.Output(append(args, "-e", "PROBE_FILES=1", "--user", "0:0", image)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(who+"\n"+files, "\n")
}

func inBothy(t *testing.T, name, dir string, args []string, newer int64, skip []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, bin, append(append([]string{"template", "build", name, "--network", "off", "--no-cache"}, args...), dir)...)
	cmd.Env = append(os.Environ(), "BOTHY_URL="+shared.URL(), "BOTHY_API_KEY="+shared.Key)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("Bothy does not build it: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = shared.Templates.RemoveTemplate(context.Background(), name) })
	sb, err := shared.Sandboxes.Create(ctx, bothy.SandboxCreate{Template: name})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Sandboxes.Terminate(context.Background(), sb.ID)
	program, err := os.Open(probe)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if _, err := shared.Files.Write(ctx, sb.ID, "/probe", program, bothy.WriteOptions{User: "root", Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	env := probeEnv(newer, skip)
	who, err := shared.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: bothy.Command{Args: []string{"/probe"}}, Env: env})
	if err != nil || who.ExitCode != 0 {
		t.Fatalf("the probe: %v %+v", err, who)
	}
	env["PROBE_FILES"] = "1"
	files, err := shared.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: bothy.Command{Args: []string{"/probe"}}, Env: env, User: "root"})
	if err != nil || files.ExitCode != 0 || files.Truncated {
		t.Fatalf("the probe: %v %+v", err, files)
	}
	return strings.Split(strings.TrimSpace(who.Stdout)+"\n"+strings.TrimSpace(files.Stdout), "\n")
}

// compareLines returns what only one side has.
func compareLines(want, got []string) (diff []string) {
	in := func(list []string) map[string]bool {
		m := map[string]bool{}
		for _, l := range list {
			m[l] = true
		}
		return m
	}
	w, g := in(want), in(got)
	for _, l := range want {
		if !g[l] {
			diff = append(diff, "- "+l)
		}
	}
	for _, l := range got {
		if !w[l] {
			diff = append(diff, "+ "+l)
		}
	}
	slices.SortStableFunc(diff, func(a, b string) int {
		one, _, _ := strings.Cut(a[2:], " ")
		two, _, _ := strings.Cut(b[2:], " ")
		return strings.Compare(one, two)
	})
	return diff
}
