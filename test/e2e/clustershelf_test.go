package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/test/testserver"
)

// bare is the template that only the first host has at the start.
const bare = "python-3.12-bare"

// fewTemplates gives each host a folder of templates: the first so many have one template, the others none.
func fewTemplates(t *testing.T, name string, having int) (folder func(i int) string) {
	t.Helper()
	// On the same disk, so that images can be hard-linked.
	root, err := os.MkdirTemp(filepath.Dir(shared.Dir), "bothy-templates-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	folder = func(i int) string { return filepath.Join(root, string(rune('a'+i))) }
	for i := range having {
		if err := os.Mkdir(folder(i), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-al", filepath.Join(shared.TemplatesDir, name), folder(i)).CombinedOutput(); err != nil {
			t.Fatal(string(out))
		}
	}
	return folder
}

// newOwnHosts starts hosts, of which only the first has a template.
func newOwnHosts(t *testing.T, names ...string) (hosts []*server, folder func(i int) string) {
	t.Helper()
	folder = fewTemplates(t, bare, 1)
	hosts = newHostsWith(t, func(i int, settings, store string) (string, string) {
		return settings + "templates: " + folder(i) + "\n", store
	}, names...)
	return hosts, folder
}

// only cordons all hosts but one, so that new sandboxes are created there.
func only(t *testing.T, hosts []*server, names []string, name string) {
	t.Helper()
	for _, other := range names {
		state := bothy.HostCordoned
		if other == name {
			state = bothy.HostUp
		}
		if _, err := hosts[0].Hosts.UpdateHost(t.Context(), other, bothy.HostUpdate{State: state}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *server) templateNames(t *testing.T) (list []string) {
	t.Helper()
	all, err := s.Templates.Templates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tm := range all {
		list = append(list, tm.Ref())
	}
	return list
}

// All hosts can use a template of one host without importing it. A template that was removed while a
// host was unavailable does not return with that host.
func TestHostsShareTemplates(t *testing.T) {
	t.Parallel()
	names := []string{"one", "two"}
	hosts, folder := newOwnHosts(t, names...)
	one, two := hosts[0], hosts[1]
	if got := two.templateNames(t); !slices.Equal(got, []string{bare}) {
		t.Fatalf("the host without a template lists %q", got)
	}
	only(t, hosts, names, "two")
	b := two.newBox(t, bothy.SandboxCreate{Template: bare, MemoryMB: 64})
	if on := sandboxesOn(t, one); on["two"] != 1 {
		t.Fatalf("the hosts have %v", on)
	}
	b.write("/workspace/file", "captured")
	if _, err := two.Templates.CreateTemplate(t.Context(), b.id, bothy.TemplateCapture{Name: "mine:v1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Templates.TagTemplate(t.Context(), "mine:v1", []string{"v2"}); err != nil {
		t.Fatal(err)
	}
	only(t, hosts, names, "one")
	made := one.newBox(t, bothy.SandboxCreate{Template: "mine:v2", MemoryMB: 64})
	if on := sandboxesOn(t, one); on["one"] != 1 {
		t.Fatalf("the hosts have %v", on)
	}
	if got := made.read("/workspace/file"); got != "captured" {
		t.Errorf("the other host's template has %q", got)
	}
	for _, id := range []string{made.id, b.id} {
		if err := one.Sandboxes.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := two.Templates.RemoveTemplate(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if links, _ := filepath.Glob(filepath.Join(folder(0), "mine", "@*")); len(links) == 0 {
		t.Error("the test needs a host whose folder has the name")
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostUp}); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if got := h.templateNames(t); !slices.Equal(got, []string{bare}) {
			t.Errorf("after the removal a host lists %q", got)
		}
		if _, err := h.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: "mine:v2", MemoryMB: 64}); bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
			t.Errorf("a removed template: %v", err)
		}
	}
	if links, _ := filepath.Glob(filepath.Join(folder(0), "mine", "@*")); len(links) > 0 {
		t.Errorf("the host that was unavailable still has %q", links)
	}
}

// newStoringOwnHosts are newOwnHosts with object storage.
func newStoringOwnHosts(t *testing.T, names ...string) ([]*server, *s3test.Server) {
	t.Helper()
	folder := fewTemplates(t, bare, 1)
	objects, blobs := newBlobs(t)
	return newHostsWith(t, func(i int, settings, store string) (string, string) {
		return settings + "templates: " + folder(i) + "\nblobs: " + blobs + "\n", store
	}, names...), objects
}

// With object storage, a template does not need the host that made it.
func TestHostsFetchTemplatesFromObjectStorage(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringOwnHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	one.logged(t, "uploaded to the object storage.*kind=templates", 1)
	one.logged(t, "uploaded to the object storage.*kind=engines", 1)
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	two.newBox(t, bothy.SandboxCreate{Template: bare, MemoryMB: 64}).usable()
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
}

// A template that the object storage has damaged is fetched from another host, which uploads it again.
func TestHostsUploadADamagedTemplateAgain(t *testing.T) {
	t.Parallel()
	names := []string{"one", "two"}
	hosts, objects := newStoringOwnHosts(t, names...)
	one, two := hosts[0], hosts[1]
	one.logged(t, "uploaded to the object storage.*kind=templates", 1)
	was := map[string]string{}
	for _, key := range objects.Objects(t, "bothy") {
		if strings.HasPrefix(key, "templates/") && (strings.HasSuffix(key, "/index.json") || len(was) == 0) {
			was[key] = objects.Get(t, "bothy", key)
			damaged := []byte(was[key])
			damaged[len(damaged)/2] ^= 1
			objects.Put(t, "bothy", key, string(damaged))
		}
	}
	if len(was) != 2 {
		t.Fatalf("%d objects were damaged", len(was))
	}
	only(t, hosts, names, "two")
	two.newBox(t, bothy.SandboxCreate{Template: bare, MemoryMB: 64}).usable()
	two.logged(t, "cannot fetch a tree from the object storage; asking the other hosts.*kind=templates", 1)
	one.logged(t, "uploaded to the object storage.*kind=templates", 2)
	for key, want := range was {
		if objects.Get(t, "bothy", key) != want {
			t.Errorf("%s is not what it was", key)
		}
	}
}

// A snapshot of another engine build is resumed with its memory on a host that never had that build:
// the host fetches the build from the other host or, once that is lost, from the object storage.
func TestHostsResumeSnapshotsOfAnotherEngineBuild(t *testing.T) {
	t.Parallel()
	older := testserver.Variant(t, "B") // before the servers start, whose leases are short
	for name, start := range map[string]func(t *testing.T, names ...string) []*server{
		"host": func(t *testing.T, names ...string) []*server { return newHosts(t, names...) },
		"object storage": func(t *testing.T, names ...string) []*server {
			hosts, _ := newStoringHosts(t, names...)
			return hosts
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := start(t, "one", "two")
			one, two := hosts[0], hosts[1]
			if err := one.Stop(); err != nil {
				t.Fatal(err)
			}
			one.Binary = older
			if err := one.Start(); err != nil {
				t.Fatal(err)
			}
			// A sandbox that was moved here would still run with the other host's build.
			only(t, hosts, []string{"one", "two"}, "one")
			b := one.newBox(t, smallest)
			if _, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostUp}); err != nil {
				t.Fatal(err)
			}
			was := b.counts()()
			if name == "host" {
				if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
					t.Fatal(err)
				}
				b.moveTo("two")
			} else {
				one.logged(t, "uploaded to the object storage.*kind=engines.*name="+regexp.QuoteMeta(one.buildThatLacks(t, two)), 1)
				if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{Wait: bothy.DurableStore}); err != nil {
					t.Fatal(err)
				}
				if err := one.Kill(); err != nil {
					t.Fatal(err)
				}
				two.awaitHostLost(t, b.id)
			}
			sb, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
				t.Errorf("it was resumed as %+v", sb.Resumed)
			}
			two.logged(t, "an engine build was fetched", 1)
			if got := b.at(two).sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid"); got != was {
				t.Errorf("the counting process is %q, and was %s", got, was)
			}
			if !one.Running() {
				if err := one.Start(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// buildThatLacks returns the engine build that one host has and another lacks.
func (s *server) buildThatLacks(t *testing.T, other *server) string {
	t.Helper()
	all, err := builds.List(filepath.Join(s.Home, "engines"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if _, err := os.Stat(filepath.Join(other.Home, "engines/builds", b.Name+".json")); errors.Is(err, fs.ErrNotExist) {
			return b.Name
		}
	}
	t.Fatal("the hosts have the same engine builds")
	return ""
}

// A new host fetches the images of its pool's templates, and makes its own golden snapshots of them.
func TestHostsMakeTheirOwnGoldenSnapshots(t *testing.T) {
	t.Parallel()
	const warmed = "python-3.12" // new sandboxes have a running interpreter
	folder := fewTemplates(t, warmed, 1)
	names := []string{"one", "two"}
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		return settings + "templates: " + folder(i) + "\npool: {templates: [" + warmed + "]}\n", store
	}, names...)
	one, two := hosts[0], hosts[1]
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	restart := func(s *server) {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		s.NoPool = false
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	restart(one)
	one.logged(t, "golden snapshot is ready", 1)
	only(t, hosts, names, "two")
	restart(two)
	two.logged(t, "fetched the image of a template", 1)
	two.logged(t, "golden snapshot is ready", 1)
	b := two.newBox(t, bothy.SandboxCreate{Template: warmed, MemoryMB: 512, DiskMB: 2048})
	if on := sandboxesOn(t, one); on["two"] != 1 {
		t.Fatalf("the hosts have %v", on)
	}
	b.usable()
}
