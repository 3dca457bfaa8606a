package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// hostPort is where the first host listens for others, in a network namespace of its own.
const hostPort = 7800

// Hosts starts the hosts of a cluster, which share the database at a URL. settings are
// additional settings.
func (l *Lab) Hosts(ctx context.Context, names []string, database, settings string) ([]*Server, error) {
	var all []*Server
	for i, name := range names {
		o := ServerOptions{
			Settings: fmt.Sprintf("%scluster:\n  name: %s\n  listen: 127.0.0.1:%d\n", settings, name, hostPort+i),
			Env:      []string{"BOTHY_STORE=" + database, "BOTHY_POOL=off"},
		}
		if i > 0 {
			o.Joins = all[0]
		}
		s, err := l.ServerWith(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// join makes the empty home of a server that of one more host.
func (l *Lab) join(ctx context.Context, program, home, credentials string, first *Server) error {
	invited, err := first.Client.Hosts.InviteHost(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "host", "join", invited.Token)
	cmd.Env = append(os.Environ(), "HOME="+l.Dir, "BOTHY_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("host join: %w: %s", err, out)
	}
	b, err := os.ReadFile(first.Home + ".json")
	if err != nil {
		return err
	}
	return os.WriteFile(credentials, b, 0o600)
}

// Kill ends a server like a loss of power: its machines end at the same time.
func (s *Server) Kill() error {
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		return err
	}
	for _, pattern := range []string{"/sys/fs/cgroup/freezer/bothy-*/*/cgroup.procs", "/sys/fs/cgroup/bothy-*/*/cgroup.procs"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			b, _ := os.ReadFile(g)
			for _, pid := range strings.Fields(string(b)) {
				var n int
				if _, err := fmt.Sscan(pid, &n); err != nil || !s.owns(pid) {
					continue
				}
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	}
	return nil
}

// owns reports whether a process belongs to one of the server's machines.
func (s *Server) owns(pid string) bool {
	b, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return strings.Contains(string(b), s.Home)
}

// Objects starts an S3 server until the lab is closed, and returns the setting `blobs` for one
// of its buckets. program is VersityGW.
func (l *Lab) Objects(ctx context.Context, program string) (string, error) {
	const user, secret, address = "bothy-bench", "bothy-bench-secret", "127.0.0.1:7790"
	for _, d := range []string{"objects", "meta"} {
		if err := os.MkdirAll(filepath.Join(l.Dir, "s3", d), 0o700); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(program, "--port", address, "--access", user, "--secret", secret, "--quiet", "--keep-alive",
		"posix", "--sidecar", filepath.Join(l.Dir, "s3", "meta"), filepath.Join(l.Dir, "s3", "objects"))
	if err := l.start("s3", cmd); err != nil {
		return "", err
	}
	c, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(user, secret, ""), Region: "us-east-1"})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := await(ctx, "wait for the S3 server", func() error { return c.MakeBucket(ctx, "bothy", minio.MakeBucketOptions{}) }); err != nil {
		return "", fmt.Errorf("%w\n%s", err, l.logTail("s3"))
	}
	keys := filepath.Join(l.Dir, "s3", "keys")
	text := "[default]\naws_access_key_id = " + user + "\naws_secret_access_key = " + secret + "\n"
	return "s3://bothy?endpoint=http%3A%2F%2F" + strings.Replace(address, ":", "%3A", 1) + "&region=us-east-1&path_style=true&credentials=" + keys,
		os.WriteFile(keys, []byte(text), 0o600)
}
