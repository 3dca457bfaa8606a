// Package gvisor is the engine that gives every sandbox a user-space kernel: gVisor,
// linked in. It needs no hardware virtualisation. Only server and tests use it;
// everything else sees bothy.Engine.
//
// A machine is one process, the sentry, in its own namespaces, with its own unprivileged
// user, under a cgroup. Its root file system is a read-only EROFS image under an overlay
// whose upper layer is an unlinked file on disk. There is no gofer: nothing in the host's
// file system is reachable from inside.
package gvisor

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel/version"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/cgroup"
	"github.com/bothy-dev/bothy/engine/gvisor/library"
	"github.com/bothy-dev/bothy/engine/gvisor/netns"
	"github.com/bothy-dev/bothy/engine/gvisor/tuning"
	"github.com/bothy-dev/bothy/engine/uid"
)

// Name is the engine's name in requests.
const Name = "gvisor"

// Options say where the engine keeps its state.
type Options struct {
	// Dir holds one folder per machine. The sentries, which have no rights there, must
	// be able to pass through it.
	Dir string
	// Sentry is the path of the binary made from cmd/sentry.
	Sentry string
	// SentryDigest and GuestDigest are the SHA-256 of Sentry and Guest, in hex, if the
	// caller has just computed them. If empty they are computed from the files.
	SentryDigest, GuestDigest string
	// Guest is the image with the guest. A snapshot's process 1 continues in it,
	// so it is part of the build. It may be empty if no snapshots are kept.
	Guest string
	// CgroupParent names the cgroup of this server's machines, unique on the
	// host.
	CgroupParent string
	// UIDs gives each machine its own user; nil means uid.Default.
	UIDs *uid.Pool
	// Processor is the host's, and CPULevel what sandboxes see of it; empty means bothy.CPUHost.
	Processor bothy.Processor
	CPULevel  string
	// Builds keeps this build for later servers, and holds those of earlier ones. With nil, only
	// memory of this build is restored.
	Builds *builds.Store
	Log    *slog.Logger
}

// Engine implements bothy.Engine.
type Engine struct {
	dir     string
	sentry  string
	build   string
	host    bothy.Processor
	level   string
	shown   bothy.Processor
	masked  []string        // the features that sandboxes may see; nil is all
	library library.Library // the sentry's
	builds  *builds.Store
	off     tuning.Off
	cgroups *cgroup.Parent
	sharing *cgroup.Sharing
	nets    *netns.Client
	uids    *uid.Pool
	log     *slog.Logger
	// controlTime, if not zero, replaces the constant and the limit of a restore, for tests.
	controlTime time.Duration

	mu sync.Mutex
	// held are the names of machines that exist or are being made: see preparedSentry.
	held map[string]bool
	// taken counts the machines by id, including those that are being started.
	taken  map[string]int
	spares []*preparedSentry
}

var (
	_ bothy.Engine      = (*Engine)(nil)
	_ bothy.Preparer    = (*Engine)(nil)
	_ bothy.BuildKeeper = (*Engine)(nil)
)

var libraryOnce sync.Once

func digest(known, path string) (string, error) {
	if known != "" {
		return known, nil
	}
	return builds.Digest(path)
}

// BuildName names a build of the engine: by gVisor's version and the digests of the sentry and, if
// there is one, the guest's image.
func BuildName(gvisor, sentry, guest string) string {
	name := Name + "-" + gvisor + "-" + sentry[:12]
	if guest != "" {
		name += "-" + guest[:8]
	}
	return name
}

// New prepares the engine; it starts no sandbox.
func New(o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	sum, err := digest(o.SentryDigest, o.Sentry)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "the gVisor engine's sentry binary cannot be read").
			WithHint("Build with `make build`, which puts it into the bothy binary.").Because(err)
	}
	gvisor, err := library.Of(o.Sentry)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeEngineMissing, "%s is not a sentry of the gVisor engine", o.Sentry).
			WithHint("Build with `make build`, which puts it into the bothy binary.").Because(err)
	}
	var guest string
	if o.Guest != "" {
		guest, err = digest(o.GuestDigest, o.Guest)
		if err != nil {
			return nil, bothy.Errorf(bothy.CodeEngineMissing, "the guest's image cannot be read").
				WithHint("Build with `make build`, which puts it into the bothy binary.").Because(err)
		}
	}
	build := BuildName(gvisor.Version, sum, guest)
	if err := keepOwn(o, build, gvisor); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, err
	}
	if err := os.Chmod(o.Dir, 0o711); err != nil {
		return nil, err
	}
	off, err := tuning.Own()
	if err != nil {
		return nil, err
	}
	uids, err := engine.UIDs(o.UIDs)
	if err != nil {
		return nil, err
	}
	cg, err := engine.Groups(o.CgroupParent)
	if err != nil {
		return nil, err
	}
	libraryOnce.Do(func() {
		log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	})
	return &Engine{
		dir:     o.Dir,
		sentry:  o.Sentry,
		build:   build,
		host:    o.Processor,
		level:   o.CPULevel,
		shown:   o.Processor.Shown(o.CPULevel),
		masked:  masked(o.CPULevel),
		library: gvisor,
		builds:  o.Builds,
		off:     off,
		cgroups: cg,
		sharing: cg.Share(),
		nets:    netns.NewClient(o.Sentry, netns.Arg),
		uids:    uids,
		log:     o.Log,
		held:    map[string]bool{},
		taken:   map[string]int{},
	}, nil
}

// Close ends the engine's helper and its spares. Machines keep running.
func (e *Engine) Close() error {
	e.KeepSpares(context.Background(), nil)
	e.sharing.Close()
	e.cgroups.Remove() // as far as no machine is in it
	return e.nets.Close()
}

// Info says which engine this is.
func (e *Engine) Info() bothy.EngineInfo {
	return bothy.EngineInfo{Name: Name, Build: e.build, Kernel: version.LinuxRelease(), Snapshots: true, Host: e.host, Shown: e.shown, CPULevel: e.level}
}

// masked returns the features that sandboxes of a level may see, or nil for all.
func masked(level string) []string {
	if level == "" || level == bothy.CPUHost {
		return nil
	}
	return bothy.CPUFeatures(level)
}

// Library returns the gVisor that its sentries are built from.
func (e *Engine) Library() library.Library { return e.library }

// Check returns what this host lacks.
func (e *Engine) Check(context.Context) error {
	if os.Geteuid() != 0 {
		return bothy.Errorf(bothy.CodeEngineMissing, "the gVisor engine needs root to make namespaces").WithHint("Run the server as root.")
	}
	dev, err := e.nets.New()
	if err != nil {
		return bothy.Errorf(bothy.CodeEngineMissing, "a network namespace with a tap cannot be made: %v", err).
			WithHint("Load the tun module (modprobe tun) and run the server as root.").Because(err)
	}
	return dev.Close()
}
