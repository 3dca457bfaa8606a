package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bothy-dev/bothy"
)

// createFlags are the flags of the commands that create a sandbox.
type createFlags struct {
	template  string
	snapshot  string
	name      string
	size      string
	engine    string
	cpu       float64
	memory    int
	disk      int
	timeout   int
	onTimeout string
	idle      int
	resume    bool
	onLoss    string
	every     interval
	network   networkFlags
	env       []string
	secrets   []string
	metadata  []string
	budget    float64

	accelerated bool
	host        []string
	repo, token string
}

func (f *createFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.template, "template", "t", "", "`template` to start from (default python-3.12)")
	flags.StringVar(&f.snapshot, "snapshot", "", "`snapshot` to start from, instead of a template")
	flags.StringVar(&f.name, "name", "", "`name` of the sandbox")
	flags.StringVar(&f.size, "size", "", "named `size`: small, medium or large, instead of numbers")
	flags.Float64Var(&f.cpu, "cpu", 0, "`number` of processors (default 1)")
	mebibytesVar(flags, &f.memory, "memory", "`size` of the memory, as in 512m or 2g (default 512m)")
	mebibytesVar(flags, &f.disk, "disk", "`size` of the disk, as in 2g (default 2g)")
	secondsVar(flags, &f.timeout, "timeout", "`time` until the sandbox ends, as in 90s or 2h, 0 for never (default 10m)")
	flags.StringVar(&f.onTimeout, "on-timeout", "", "`what` happens then: terminate or pause (default terminate)")
	secondsVar(flags, &f.idle, "idle", "pause after an idle `time`, as in 5m (default never)")
	flags.BoolVar(&f.resume, "auto-resume", false, "resume on the next request when paused")
	flags.Var(&f.every, "checkpoint", "take a checkpoint every `interval` while it runs, as in 60s (default never)")
	flags.StringVar(&f.onLoss, "on-host-loss", "", "`what` happens to it when its host is lost: pause, resume or fail (default pause)")
	flags.StringVar(&f.engine, "engine", "", "`engine` to run on: gvisor, microvm or auto (default the server's)")
	flags.BoolVar(&f.accelerated, "require-acceleration", false, "refuse a virtual machine that would be emulated")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, as `KEY=VALUE` (repeatable)")
	flags.StringArrayVar(&f.secrets, "secret", nil, "secret that the gateway inserts into requests to its hosts, as `NAME@HOST,…`; its value is $NAME here (repeatable)")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "metadata, as `KEY=VALUE` (repeatable)")
	flags.Float64Var(&f.budget, "budget", 0, "`amount` that the sandbox and its forks may spend before they are paused (default any)")
	flags.StringArrayVar(&f.host, "host-label", nil, "only on a host of the cluster with this label, as `KEY=VALUE` (repeatable)")
	f.network.add(flags)
}

// addRepo defines the flags of commands that do not have a repository of their own.
func (f *createFlags) addRepo(flags *pflag.FlagSet) {
	flags.StringVar(&f.repo, "repo", "", "git repository to clone below /workspace, as `URL#REF`; the network must allow its host")
	flags.StringVar(&f.token, "repo-token", "", "`NAME` of the variable here that holds the token of a private repository; it never enters the sandbox")
}

// requestFor is request with the id of the snapshot, which the flags may give by name.
func (f *createFlags) requestFor(ctx context.Context, s *session, flags *pflag.FlagSet) (bothy.SandboxCreate, error) {
	req, err := f.request(flags)
	if err == nil && req.SnapshotID != "" {
		req.SnapshotID, err = s.snapshotNamed(ctx, req.SnapshotID, "")
	}
	return req, err
}

// request makes the API's request from the flags.
func (f *createFlags) request(flags *pflag.FlagSet) (bothy.SandboxCreate, error) {
	req := bothy.SandboxCreate{
		Template: f.template, SnapshotID: f.snapshot, Name: f.name, Size: f.size, Engine: f.engine,
		CPU: f.cpu, MemoryMB: f.memory, DiskMB: f.disk,
		OnTimeout: bothy.OnTimeout(f.onTimeout), IdleSeconds: f.idle, AutoResume: f.resume, OnHostLoss: bothy.OnHostLoss(f.onLoss), CheckpointSeconds: int(f.every), Budget: f.budget,
		RequireAcceleration: f.accelerated, Repo: f.repo,
	}
	if f.token != "" {
		if req.RepoToken = os.Getenv(f.token); req.RepoToken == "" {
			return req, usagef("Set it: "+f.token+"=… bothy …", "--repo-token %s: there is no environment variable %s", f.token, f.token)
		}
	}
	if flags.Changed("timeout") {
		req.TimeoutSeconds = &f.timeout
	}
	var err error
	if req.Network, err = f.network.network(); err != nil {
		return req, err
	}
	if req.Env, err = keyValues("--env", f.env); err != nil {
		return req, err
	}
	if req.Secrets, err = secrets(f.secrets); err != nil {
		return req, err
	}
	if req.Metadata, err = keyValues("--metadata", f.metadata); err != nil {
		return req, err
	}
	req.HostLabels, err = keyValues("--host-label", f.host)
	return req, err
}

// secrets reads NAME@HOST,… words. The value comes from the environment, so
// that neither the list of processes nor the shell's history shows it.
func secrets(words []string) ([]bothy.Secret, error) {
	var list []bothy.Secret
	for _, word := range words {
		name, hosts, ok := strings.Cut(word, "@")
		if !ok || name == "" || hosts == "" {
			return nil, usagef("Write it as NAME@api.example.com.", "--secret %q does not say for which hosts", word)
		}
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, usagef("Set it: "+name+"=… bothy …", "--secret %s: there is no environment variable %s", word, name)
		}
		list = append(list, bothy.Secret{Name: name, Value: value, Hosts: strings.Split(hosts, ",")})
	}
	return list, nil
}

// keyValues reads KEY=VALUE words.
func keyValues(flag string, words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(words))
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, usagef("Write it as KEY=VALUE.", "%s %q has no value", flag, word)
		}
		m[key] = value
	}
	return m, nil
}
