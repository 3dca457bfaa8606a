// Package config holds the server's settings: one struct, its defaults in one
// place, and the file that shows every key. Only cli and server read it; they
// pass other packages what they need.
package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bothy-dev/bothy"
)

// Config is every setting of the server. Flags override the environment, which overrides the
// file, which overrides the defaults.
type Config struct {
	// Home is where the server keeps its state.
	Home string `yaml:"home"`
	// Store is where the records of the state are kept: empty for files in Home, or the URL of a
	// PostgreSQL database.
	Store string `yaml:"store"`
	// Cluster makes the server one of several hosts that share the database.
	Cluster Cluster `yaml:"cluster"`
	// Blobs is object storage for the files of snapshots, as s3://BUCKET/PREFIX?…; empty means
	// only this host's disk.
	Blobs string `yaml:"blobs"`
	// Templates is the folder of the templates; empty means Home/templates.
	Templates string `yaml:"templates"`
	// Listen is the address of the API.
	Listen string `yaml:"listen"`
	// AllowedHosts are additional names under which the API may be addressed.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// TrustedProxies are the addresses of proxies that are trusted to report the client's
	// address and scheme.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// MetricsListen is an address where /metrics needs no key; empty means none.
	MetricsListen string `yaml:"metrics_listen"`
	// Insecure allows listening beyond this host without TLS.
	Insecure bool `yaml:"insecure"`
	// TLS is the API's certificate.
	TLS TLS `yaml:"tls"`
	// ShutdownSeconds is how long a stopping server waits for requests in flight.
	ShutdownSeconds int `yaml:"shutdown_seconds"`
	// LinkDomain is the domain below which the ports of sandboxes have names, such as
	// 3000-ID.DOMAIN.
	LinkDomain string `yaml:"link_domain"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `yaml:"log_level"`
	// LogFormat is text or json.
	LogFormat string `yaml:"log_format"`

	Engine    Engine    `yaml:"engine"`
	Engines   Engines   `yaml:"engines"`
	Sandboxes Sandboxes `yaml:"sandboxes"`
	Pool      Pool      `yaml:"pool"`
	Snapshots Snapshots `yaml:"snapshots"`
	Network   Network   `yaml:"network"`
	Audit     Audit     `yaml:"audit"`
	Inflight  Inflight  `yaml:"inflight"`
	Metering  Metering  `yaml:"metering"`
	Rates     Rates     `yaml:"rates"`
	E2B       E2B       `yaml:"e2b"`
	OpenAI    OpenAI    `yaml:"openai"`
	Webhooks  Webhooks  `yaml:"webhooks"`

	Registries Registries `yaml:"registries"`
}

// Cluster is this server among the hosts that share a database. Without a name it is alone.
type Cluster struct {
	// Name is the host's name, which must not change.
	Name string `yaml:"name"`
	// Listen is where it answers other hosts, and Address where they reach it; empty means
	// Listen.
	Listen  string `yaml:"listen"`
	Address string `yaml:"address"`
	// Labels are shown with the host.
	Labels map[string]string `yaml:"labels"`
	// LeaseSeconds is how long a host counts as alive without renewing its lease.
	LeaseSeconds int `yaml:"lease_seconds"`
}

// On reports whether the server is one of several hosts.
func (c Cluster) On() bool { return c.Name != "" }

// defaultLease is the default of LeaseSeconds.
const defaultLease = 15

// shortestLease is the shortest lease: a renewal must have time to arrive.
const shortestLease = 5

func (c Config) checkCluster() error {
	switch k := c.Cluster; {
	case !k.On():
		return k.checkAlone()
	case c.Store == "":
		return bothy.Errorf(bothy.CodeInvalid, "cluster.name is set, and store is not").WithHint("Name the PostgreSQL database that the hosts share in `store`.")
	case k.Listen == "":
		return bothy.Errorf(bothy.CodeInvalid, "cluster.name is set, and cluster.listen is not").WithHint("Give the address on which the other hosts reach this one, such as 10.0.0.5:7710.")
	case k.LeaseSeconds < shortestLease:
		return bothy.Errorf(bothy.CodeInvalid, "cluster.lease_seconds is %d", k.LeaseSeconds).WithHint("Give %d or more.", shortestLease)
	}
	return c.Cluster.checkAddresses()
}

// checkAddresses refuses addresses at which other hosts would reach themselves, or nothing.
func (c Cluster) checkAddresses() error {
	for _, x := range []struct{ key, at string }{{"listen", c.Listen}, {"address", cmp.Or(c.Address, c.Listen)}} {
		host, port, err := net.SplitHostPort(x.at)
		if err != nil || port == "" || port == "0" {
			return bothy.Errorf(bothy.CodeInvalid, "cluster.%s is %q", x.key, x.at).WithHint("Give an address and a port that stays, such as 10.0.0.5:7710.")
		}
		ip, err := netip.ParseAddr(host)
		if x.key == "address" && (host == "" || err == nil && ip.IsUnspecified()) {
			return bothy.Errorf(bothy.CodeInvalid, "other hosts cannot reach this one at %s", x.at).
				WithHint("Say in `cluster.address` where they reach it, such as 10.0.0.5:7710.")
		}
	}
	return nil
}

// checkAlone refuses settings of a cluster if this server is not in one.
func (c Cluster) checkAlone() error {
	var set []string
	for name, is := range map[string]bool{
		"listen": c.Listen != "", "address": c.Address != "", "labels": len(c.Labels) > 0, "lease_seconds": c.LeaseSeconds != defaultLease,
	} {
		if is {
			set = append(set, "cluster."+name)
		}
	}
	if len(set) == 0 {
		return nil
	}
	slices.Sort(set)
	return bothy.Errorf(bothy.CodeInvalid, "%s is set, and cluster.name is not: this server is not a host of a cluster", strings.Join(set, ", ")).
		WithHint("Name the host in cluster.name, and the PostgreSQL database that the hosts share in `store`; or leave the settings below cluster out. See docs/cluster.md.")
}

// Registries says how image registries are reached.
type Registries struct {
	// Mirrors are tried before a registry, by its host.
	Mirrors map[string][]string `yaml:"mirrors"`
	// PlainHTTP are hosts that are reached without TLS.
	PlainHTTP []string `yaml:"plain_http"`
}

// Audit says what is recorded of who did what.
type Audit struct {
	// KeepDays is how long records are kept; 0 means for ever.
	KeepDays int `yaml:"keep_days"`
	// Commands also records the text of commands.
	Commands bool `yaml:"commands"`
	// Reads also records calls that change nothing.
	Reads bool `yaml:"reads"`
}

// TLS is a certificate in files, or one obtained by ACME; without either, the API speaks plain
// HTTP.
type TLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	ACME     ACME   `yaml:"acme"`
}

// ACME obtains a certificate for Domains, if there are any.
type ACME struct {
	Domains []string `yaml:"domains"`
	Email   string   `yaml:"email"`
	// DirectoryURL is the authority's, and CAFile what its own certificate is verified with.
	DirectoryURL string `yaml:"directory_url"`
	CAFile       string `yaml:"ca_file"`
	// HTTPPort and TLSPort receive its challenges; 0 disables one.
	HTTPPort int `yaml:"http_port"`
	TLSPort  int `yaml:"tls_port"`
}

// On reports whether the API speaks TLS.
func (t TLS) On() bool { return t.CertFile != "" || len(t.ACME.Domains) > 0 }

// Engine chooses what gives sandboxes their kernel.
type Engine struct {
	// Default is the engine of requests that name none: gvisor, microvm or auto.
	Default string `yaml:"default"`
	// Auto is the meaning of auto: AutoAccelerated or AutoStrongest.
	Auto string `yaml:"auto"`
	// UIDs is the range of the host's user ids, such as 200000-265535, from which every machine
	// gets one; empty means a range that no account or container uses.
	UIDs string `yaml:"uids"`
	// CPULevel is what sandboxes see of the processor: bothy.CPUHost, or a level of x86-64.
	CPULevel string  `yaml:"cpu_level"`
	Microvm  Microvm `yaml:"microvm"`
}

// The engines that auto can mean.
const (
	// AutoAccelerated is a virtual machine if KVM works, and gVisor otherwise.
	AutoAccelerated = "accelerated"
	// AutoStrongest is a virtual machine if there can be one, even if emulated.
	AutoStrongest = "strongest"
)

// Microvm says how virtual machines are made.
type Microvm struct {
	// Kernel is the operator's own: a Debian package, a bzImage or an ELF kernel. Empty means
	// Debian's for clouds. Modules is the folder of its modules, unless it is a package; empty
	// means /lib/modules/VERSION.
	Kernel  string `yaml:"kernel"`
	Modules string `yaml:"modules"`
	// Kernels is the folder of kernels that were fetched or unpacked; empty means Home/kernels.
	// Servers may share it.
	Kernels string `yaml:"kernels"`
	// Acceleration is auto, kvm, which never emulates, or emulated, which never uses KVM.
	Acceleration string `yaml:"acceleration"`
}

func (e Engine) check() error {
	for _, c := range []struct {
		key, value string
		of         []string
	}{
		{"engine.default", e.Default, []string{"gvisor", "microvm", bothy.EngineAuto}},
		{"engine.cpu_level", e.CPULevel, []string{bothy.CPUHost, bothy.CPULevel2, bothy.CPULevel3, bothy.CPULevel4}},
		{"engine.auto", e.Auto, []string{AutoAccelerated, AutoStrongest}},
		{"engine.microvm.acceleration", e.Microvm.Acceleration, []string{"auto", "kvm", "emulated"}},
	} {
		if !slices.Contains(c.of, c.value) {
			return bothy.Errorf(bothy.CodeInvalid, "%s is %q", c.key, c.value).WithHint("Give one of: %s.", strings.Join(c.of, ", "))
		}
	}
	if e.Microvm.Modules != "" && e.Microvm.Kernel == "" {
		return bothy.Errorf(bothy.CodeInvalid, "engine.microvm.modules has no kernel").WithHint("Name it in engine.microvm.kernel.")
	}
	return nil
}

// Engines says which builds of engines are kept for the snapshots that they wrote.
type Engines struct {
	// Refuse names builds whose memory is not restored: builds, SHA-256 sums or versions, or the
	// beginnings of the former two.
	Refuse []string `yaml:"refuse"`
	// KeepMB bounds the builds of earlier servers; 0 means no bound.
	KeepMB int64 `yaml:"keep_mb"`
}

// Sandboxes limits what the host provides.
type Sandboxes struct {
	// Max is how many may run at once; 0 means no bound.
	Max int `yaml:"max"`
	// MinFreeMemoryMB is how much the host keeps for itself.
	MinFreeMemoryMB int `yaml:"min_free_memory_mb"`
	// WaitSeconds is how long a request waits for a place when the host is full; 0 refuses it
	// immediately.
	WaitSeconds int `yaml:"wait_seconds"`
	// StartsAtOnce is how many may be starting at the same time, while the others wait for their
	// turn; 0 means a number that suits the host's processors.
	StartsAtOnce int `yaml:"starts_at_once"`
	// KeepEndedHours is how long an ended sandbox can still be looked up.
	KeepEndedHours int `yaml:"keep_ended_hours"`
}

// Pool says what is made in advance. 0 makes nothing of a kind.
type Pool struct {
	// Templates are those of which Ready sandboxes of the default size are kept waiting.
	Templates []string `yaml:"templates"`
	Ready     int      `yaml:"ready"`
	// ReadyMax bounds the number of waiting sandboxes. Templates in frequent use fill it.
	ReadyMax int `yaml:"ready_max"`
	// Spares is the maximum number of half-started sandboxes.
	Spares int `yaml:"spares"`
	// GoldenMax is how many golden snapshots are kept.
	GoldenMax int `yaml:"golden_max"`
	// MinFreeMemoryMB is the host's free memory below which all this is given up.
	MinFreeMemoryMB int `yaml:"min_free_memory_mb"`
}

// Snapshots limits what is kept. 0 means no limit.
type Snapshots struct {
	// KeepPerSandbox is how many of one sandbox are kept; the oldest go first.
	KeepPerSandbox int `yaml:"keep_per_sandbox"`
	// KeepHours is how long each is kept.
	KeepHours int `yaml:"keep_hours"`
	// ProjectQuotaMB limits the size of a project's snapshots.
	ProjectQuotaMB int64 `yaml:"project_quota_mb"`
	// MinFreeDiskMB is how much of the host's disk imports and template builds leave free.
	MinFreeDiskMB int64 `yaml:"min_free_disk_mb"`
	// CacheMB bounds what snapshots that are in the object storage take up on this host's
	// disk as well, and what images of templates do that this host has fetched.
	CacheMB int64 `yaml:"cache_mb"`
	// GraceHours is how long a deleted snapshot stays in the object storage.
	GraceHours int `yaml:"grace_hours"`
	// TrustedKeys are the keys of other servers whose archives may be imported with their
	// memory.
	TrustedKeys []string `yaml:"trusted_keys"`
}

// Webhooks limits which addresses the server itself calls for users.
type Webhooks struct {
	// Allow are private and other special prefixes in which receivers may be.
	Allow []netip.Prefix `yaml:"allow"`
}

// Network is the operator's part of every sandbox's policy.
type Network struct {
	// TrustHostCA makes sandboxes trust the certificate authorities that this host trusts, as is
	// needed behind a proxy that inspects TLS.
	TrustHostCA bool `yaml:"trust_host_ca"`
	// CABundle is the file that contains them.
	CABundle string `yaml:"ca_bundle"`
	// Allow lifts the ban on private and other special prefixes.
	Allow []netip.Prefix `yaml:"allow"`
	// Forbid adds to the forbidden prefixes.
	Forbid []netip.Prefix `yaml:"forbid"`
}

// Default returns the settings of a server without configuration.
func Default() Config {
	return Config{
		Home: "/var/lib/bothy", Listen: "127.0.0.1:7700", LogFormat: "text", LinkDomain: "localhost", ShutdownSeconds: 10,
		TLS: TLS{ACME: ACME{
			DirectoryURL: "https://acme-v02.api.letsencrypt.org/directory", HTTPPort: 80, TLSPort: 443,
		}},
		Engine:    Engine{Default: "gvisor", Auto: AutoAccelerated, CPULevel: bothy.CPUHost, Microvm: Microvm{Acceleration: "auto"}},
		Sandboxes: Sandboxes{Max: 2000, MinFreeMemoryMB: 512, WaitSeconds: 10, KeepEndedHours: 168},
		Pool: Pool{
			Templates: []string{bothy.DefaultTemplate}, Ready: 1, ReadyMax: 4, Spares: 2, GoldenMax: 16,
			MinFreeMemoryMB: 2048,
		},
		Engines: Engines{KeepMB: 4096}, Snapshots: Snapshots{MinFreeDiskMB: 2048, CacheMB: 20480, GraceHours: 24}, Network: Network{CABundle: "/etc/ssl/certs/ca-certificates.crt"},
		Inflight: defaultInflight(),
		Metering: Metering{FlushSeconds: 10, WarnAt: 0.8}, Rates: defaultRates(),
		Audit: Audit{KeepDays: 365, Commands: true}, E2B: defaultE2B(), OpenAI: defaultOpenAI(), Cluster: Cluster{Labels: map[string]string{}, LeaseSeconds: defaultLease},
	}
}

// Example is the file with every key and its default.
//
//go:embed bothy.yaml
var Example string

// Load reads the file, if path is not empty, over the defaults, and then the environment over
// that.
func Load(path string, getenv func(string) string) (Config, error) {
	c := Default()
	if path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return c, bothy.Errorf(bothy.CodeInvalid, "the settings in %s cannot be read", path).
				WithHint("Check the path and its permissions.").Because(err)
		}
		if err := c.parse(b); err != nil {
			return c, bothy.Errorf(bothy.CodeInvalid, "%s: %v", path, err).
				WithHint("`bothy serve --print-config` shows every key with its default.")
		}
	}
	for env, field := range map[string]*string{
		"BOTHY_HOME": &c.Home, "BOTHY_STORE": &c.Store, "BOTHY_BLOBS": &c.Blobs, "BOTHY_LISTEN": &c.Listen, "BOTHY_TEMPLATES": &c.Templates, "BOTHY_KERNELS": &c.Engine.Microvm.Kernels,
	} {
		if v := getenv(env); v != "" {
			*field = v
		}
	}
	switch v := getenv("BOTHY_POOL"); v {
	case "", "on":
	case "off":
		c.Pool = Pool{}
	default:
		return c, bothy.Errorf(bothy.CodeInvalid, "BOTHY_POOL is %q", v).WithHint("Give on or off.")
	}
	return c, nil
}

func (c *Config) parse(b []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Finish fills in what depends on other settings, makes paths absolute, and checks everything.
func (c *Config) Finish() error {
	if c.Templates == "" {
		c.Templates = filepath.Join(c.Home, "templates")
	}
	m := &c.Engine.Microvm
	if m.Kernels == "" {
		m.Kernels = filepath.Join(c.Home, "kernels")
	}
	for _, p := range []*string{&c.Home, &c.Templates, &m.Kernel, &m.Modules, &m.Kernels} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if c.Store != "" && !strings.HasPrefix(c.Store, "postgres://") && !strings.HasPrefix(c.Store, "postgresql://") {
		// The error omits the value: it may contain a password.
		return bothy.Errorf(bothy.CodeInvalid, "store is not the URL of a database").
			WithHint("Give postgres://USER@HOST:5432/DATABASE, or nothing for files in home.")
	}
	if c.Blobs != "" && !strings.HasPrefix(c.Blobs, "s3://") {
		return bothy.Errorf(bothy.CodeInvalid, "blobs is not the URL of a bucket").
			WithHint("Give s3://BUCKET/PREFIX?endpoint=https://HOST, or nothing for this host's disk alone.")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return bothy.Errorf(bothy.CodeInvalid, "log_format is %q", c.LogFormat).WithHint("Give text or json.")
	}
	if c.Sandboxes.Max < 0 || c.Sandboxes.MinFreeMemoryMB < 0 || c.Sandboxes.WaitSeconds < 0 || c.Sandboxes.StartsAtOnce < 0 || c.Sandboxes.KeepEndedHours < 0 ||
		c.Snapshots.KeepPerSandbox < 0 || c.Snapshots.KeepHours < 0 || c.Snapshots.ProjectQuotaMB < 0 || c.Snapshots.MinFreeDiskMB < 0 || c.Snapshots.CacheMB < 0 || c.Snapshots.GraceHours < 0 || c.Engines.KeepMB < 0 {
		return bothy.Errorf(bothy.CodeInvalid, "a number under engines, sandboxes or snapshots is negative").WithHint("Give 0 for no bound.")
	}
	if c.Audit.KeepDays < 0 {
		return bothy.Errorf(bothy.CodeInvalid, "audit.keep_days is %d", c.Audit.KeepDays).WithHint("Give 0 to keep all of it.")
	}
	if err := errors.Join(c.Metering.check(), c.Rates.check()); err != nil {
		return err
	}
	if c.ShutdownSeconds < 0 {
		return bothy.Errorf(bothy.CodeInvalid, "shutdown_seconds is %d", c.ShutdownSeconds).WithHint("Give 0 to cut requests off at once.")
	}
	return errors.Join(c.Engine.check(), c.TLS.check(), c.checkListen(), c.checkProxies(), c.checkCluster(), c.Pool.check(), c.Inflight.check(), c.E2B.check(), c.OpenAI.check())
}

func (t TLS) check() error {
	a := t.ACME
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return bothy.Errorf(bothy.CodeInvalid, "of tls.cert_file and tls.key_file one is missing").WithHint("Give both.")
	case t.CertFile != "" && len(a.Domains) > 0:
		return bothy.Errorf(bothy.CodeInvalid, "tls has both a certificate and acme.domains").WithHint("Give one of them.")
	case len(a.Domains) == 0:
		return nil
	case !strings.HasPrefix(a.DirectoryURL, "https://"):
		return bothy.Errorf(bothy.CodeInvalid, "tls.acme.directory_url is %q", a.DirectoryURL).WithHint("Give the https URL of the authority's directory.")
	case min(a.HTTPPort, a.TLSPort) < 0 || max(a.HTTPPort, a.TLSPort) > 65535 || a.HTTPPort+a.TLSPort == 0:
		return bothy.Errorf(bothy.CodeInvalid, "tls.acme: http_port %d and tls_port %d cannot be", a.HTTPPort, a.TLSPort).
			WithHint("Give ports on which the authority's challenges arrive; 0 does without one of them.")
	}
	for _, d := range a.Domains {
		if !strings.Contains(d, ".") || strings.ContainsAny(d, "*/: ") {
			return bothy.Errorf(bothy.CodeInvalid, "tls.acme.domains: no certificate can be issued for %q", d).
				WithHint("Give whole names without wildcards, such as bothy.example.org.")
		}
	}
	return nil
}

// checkListen prevents keys from travelling in the clear by mistake.
func (c *Config) checkListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return bothy.Errorf(bothy.CodeInvalid, "listen is %q", c.Listen).WithHint("Give an address and a port, such as 127.0.0.1:7700.")
	}
	if c.TLS.On() || c.Insecure || host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return bothy.Errorf(bothy.CodeInvalid, "%s can be reached from other hosts, and there keys would travel in the clear", c.Listen).
		WithHint("Set tls.cert_file and tls.key_file, or tls.acme.domains; listen on 127.0.0.1 behind a proxy that speaks TLS; or say that the network is trusted, with `insecure: true` or --insecure.")
}

func (c *Config) checkProxies() error {
	for _, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			return bothy.Errorf(bothy.CodeInvalid, "trusted_proxies: %s is everybody, who could then claim any address", p).
				WithHint("Name the addresses of your proxies, such as 127.0.0.1/32.")
		}
	}
	if c.MetricsListen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.MetricsListen); err != nil || c.MetricsListen == c.Listen {
		return bothy.Errorf(bothy.CodeInvalid, "metrics_listen is %q", c.MetricsListen).
			WithHint("Give an address and a port of its own, such as 127.0.0.1:7701.")
	}
	return nil
}

func (p Pool) check() error {
	if min(p.Ready, p.ReadyMax, p.Spares, p.GoldenMax, p.MinFreeMemoryMB) < 0 {
		return bothy.Errorf(bothy.CodeInvalid, "a number under pool is negative").WithHint("Give 0 to have none.")
	}
	for _, name := range p.Templates {
		if !bothy.ValidTemplateName(name) {
			return bothy.Errorf(bothy.CodeInvalid, "pool.templates: %q cannot be the name of a template", name).
				WithHint("Name templates as `bothy templates` lists them.")
		}
	}
	return nil
}

// TrustedCAs returns the PEM that sandboxes trust in addition to their template's, or "".
func (c *Config) TrustedCAs() (string, error) {
	if !c.Network.TrustHostCA {
		return "", nil
	}
	b, err := os.ReadFile(c.Network.CABundle)
	if err != nil {
		return "", bothy.Errorf(bothy.CodeInvalid, "network.ca_bundle: %s cannot be read", c.Network.CABundle).
			WithHint("Install ca-certificates, or name the host's bundle.").Because(err)
	}
	if !bytes.Contains(b, []byte("BEGIN CERTIFICATE")) {
		return "", fmt.Errorf("%s holds no certificate", c.Network.CABundle)
	}
	return string(b), nil
}
