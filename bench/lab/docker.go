package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/bench"
)

// Docker is the lab's own Docker daemon, with an image that contains the same files as the
// template.
type Docker struct {
	Version string
	Driver  string

	cli    string
	socket string
	http   *http.Client
	// images are those imported from templates, by name.
	images map[string]bool
}

const dockerImage = "bothy-bench"

// Docker starts the daemon and imports the image.
func (l *Lab) Docker(ctx context.Context) (*Docker, error) {
	dir := filepath.Join(l.Dir, "docker")
	// Debian's client belongs to Debian's daemon; others may be in the PATH.
	d := &Docker{cli: "/usr/bin/docker", socket: filepath.Join(dir, "docker.sock"), images: map[string]bool{}}
	if _, err := os.Stat(d.cli); err != nil {
		d.cli = "docker"
	}
	for _, name := range []string{"dockerd", d.cli} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, &Missing{"docker", "there is no " + filepath.Base(name) + " in the PATH"}
		}
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "daemon.json") // and not the host's
	settings := []byte("{}")
	if l.Options.Runsc != "" {
		settings = fmt.Appendf(nil, `{"runtimes": {%q: {"path": %q}}}`, GVisorRuntime, l.Options.Runsc)
	}
	if err := os.WriteFile(config, settings, 0o600); err != nil {
		return nil, err
	}
	parent := fmt.Sprintf("bothy-bench-%d", os.Getpid())
	l.undo.Add(func() { removeGroups(parent) })
	err := l.start("dockerd", exec.Command("dockerd", "--host=unix://"+d.socket, "--data-root="+filepath.Join(dir, "data"),
		"--exec-root="+filepath.Join(dir, "exec"), "--pidfile="+filepath.Join(dir, "pid"), "--storage-driver=overlay2",
		"--cgroup-parent=/"+parent, "--config-file="+config))
	if err != nil {
		return nil, err
	}
	// What the daemon mounts is unmounted before the folder is removed.
	l.undo.Add(func() { unmountBelow(dir) })
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var info struct{ ServerVersion, Driver string }
	if err := await(wait, "wait for dockerd", func() error { return d.call(wait, "GET", "/info", nil, &info) }); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, l.logTail("dockerd"))
	}
	d.Version, d.Driver = info.ServerVersion, info.Driver
	l.undo.Add(d.removeAll)
	return d, d.imageOf(ctx, l, l.Template, dockerImage)
}

// imageOf imports the files of a template.
func (d *Docker) imageOf(ctx context.Context, l *Lab, template, name string) error {
	if d.images[name] {
		return nil
	}
	tree, err := l.TreeOf(template)
	if err != nil {
		return err
	}
	imported := exec.CommandContext(ctx, "sh", "-c", `tar -C "$0" --one-file-system -c . | "$@"`, tree, d.cli, "-H", "unix://"+d.socket, "import", "-", name)
	if out, err := imported.CombinedOutput(); err != nil {
		return fmt.Errorf("import the image: %w: %s", err, out)
	}
	d.images[name] = true
	return nil
}

// GVisorRuntime is the name under which Docker runs a container in runsc, if it can.
const GVisorRuntime = "runsc"

func (d *Docker) removeAll() {
	out, _ := d.Output("ps", "-aq")
	if ids := strings.Fields(out); len(ids) > 0 {
		_, _ = d.Output(append([]string{"rm", "-f"}, ids...)...)
	}
}

// Output runs docker and returns what it writes.
func (d *Docker) Output(args ...string) (string, error) {
	cmd := exec.Command(d.cli, append([]string{"-H", "unix://" + d.socket}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %v: %w: %s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// call calls the daemon's API.
func (d *Docker) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://docker/v1.41"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := d.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("docker %s %s: %s: %s", method, path, res.Status, b)
	}
	if out != nil {
		return json.Unmarshal(b, out)
	}
	return nil
}

// Container starts a container that idles, and returns its id.
func (d *Docker) Container(network string) (string, error) {
	return d.Output("run", "-d", "--network", network, dockerImage, "/bin/sleep", "infinity")
}

// Listening starts a container on Docker's own bridge that runs a server, and returns its
// address. The server may not listen yet.
func (d *Docker) Listening(command ...string) (addr string, err error) {
	id, err := d.Output(append([]string{"run", "-d", "--network", "bridge", dockerImage}, command...)...)
	if err != nil {
		return "", err
	}
	return d.Output("inspect", "-f", "{{.NetworkSettings.Networks.bridge.IPAddress}}", id)
}

// RunOnce is a subject: docker run --rm, without a network. It returns when the
// container has been removed.
func (d *Docker) RunOnce() bench.Subject {
	return bench.RunOf("docker", func(context.Context) error {
		_, err := d.Output("run", "--rm", "--network", "none", dockerImage, "/bin/true")
		return err
	})
}

// RunByAPI is a subject: the same without the command line client, over a kept connection:
// create, start and wait, and then remove.
func (d *Docker) RunByAPI() bench.Subject {
	return bench.Subject{Name: "docker-api", Once: func(ctx context.Context, record bench.Record) error {
		begun := time.Now()
		var c struct{ ID string }
		err := d.call(ctx, "POST", "/containers/create", map[string]any{
			"Image": dockerImage, "Cmd": []string{"/bin/true"}, "HostConfig": map[string]any{"NetworkMode": "none"},
		}, &c)
		if err != nil {
			return err
		}
		if err := d.call(ctx, "POST", "/containers/"+c.ID+"/start", nil, nil); err != nil {
			return err
		}
		if err := d.call(ctx, "POST", "/containers/"+c.ID+"/wait", nil, nil); err != nil {
			return err
		}
		record(bench.CreateExecCold, bench.Since(begun))
		err = d.call(ctx, "DELETE", "/containers/"+c.ID, nil, nil)
		record(bench.WholeLifeCold, bench.Since(begun))
		return err
	}}
}

// Exec is a subject: docker exec in a running container.
func (d *Docker) Exec(container string) bench.Subject {
	return bench.Subject{Name: "docker", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		_, err := d.Output("exec", container, "/bin/true")
		record("exec", bench.Since(begun))
		return err
	}}
}

// ExecByAPI is a subject: the same over a kept connection. The command ends with its output.
func (d *Docker) ExecByAPI(container string) bench.Subject {
	return bench.Subject{Name: "docker-api", Once: func(ctx context.Context, record bench.Record) error {
		begun := time.Now()
		var x struct{ ID string }
		err := d.call(ctx, "POST", "/containers/"+container+"/exec", map[string]any{
			"Cmd": []string{"/bin/true"}, "AttachStdout": true, "AttachStderr": true,
		}, &x)
		if err != nil {
			return err
		}
		if err := d.call(ctx, "POST", "/exec/"+x.ID+"/start", map[string]any{"Detach": false}, nil); err != nil {
			return err
		}
		var end struct {
			Running  bool
			ExitCode int
		}
		if err := d.call(ctx, "GET", "/exec/"+x.ID+"/json", nil, &end); err != nil {
			return err
		}
		record("exec", bench.Since(begun))
		if end.ExitCode != 0 {
			return fmt.Errorf("docker exec ended with %d", end.ExitCode)
		}
		return nil
	}}
}

// Copy is a subject: docker cp of a file into a container and out of it again, discarding it.
// The better of the two directions counts.
func (d *Docker) Copy(container, path string, size int64) bench.Subject {
	return bench.Subject{Name: "docker", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		if _, err := d.Output("cp", path, container+":/large"); err != nil {
			return err
		}
		up := time.Since(begun)
		begun = time.Now()
		cmd := exec.Command(d.cli, "-H", "unix://"+d.socket, "cp", container+":/large", "-")
		if err := cmd.Run(); err != nil {
			return err
		}
		better := min(up, time.Since(begun))
		record(bench.FileUp, float64(size)/1e6/better.Seconds())
		record(bench.FileDown, float64(size)/1e6/better.Seconds())
		return nil
	}}
}

// unmountBelow unmounts what is mounted in a folder, in this mount namespace.
func unmountBelow(dir string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			_ = unix.Unmount(f[4], unix.MNT_DETACH)
		}
	}
}

// removeGroups removes the cgroups below a parent of that name, children first.
func removeGroups(parent string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + parent)
	roots = append(roots, "/sys/fs/cgroup/"+parent)
	for _, root := range roots {
		var all []string
		_ = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			_ = unix.Rmdir(all[i])
		}
	}
}
