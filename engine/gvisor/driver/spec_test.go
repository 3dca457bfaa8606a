package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/bothy-dev/bothy"
)

// TestSpecIsRead lets the sentry's parser read the server's spec, and one with more fields.
func TestSpecIsRead(t *testing.T) {
	usual := ociSpec(Launch{
		Name: "read", RootFS: "/templates/rootfs.erofs", Guest: "/guest.erofs", Hostname: "box",
		Limits: bothy.Limits{CPU: 1, MemoryMB: 512, DiskMB: 1024, Processes: 100},
	}, "/empty")
	more := ociSpec(Launch{Name: "more", Limits: bothy.Limits{CPU: 1, MemoryMB: 512}, CPUFeatures: bothy.CPUFeatures(bothy.CPULevel2)}, "/empty")
	more.Process.NoNewPrivileges = true
	more.Linux.MaskedPaths = []string{"/proc/kcore"}
	for name, want := range map[string]*specs.Spec{"usual": usual, "more": more} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "config.json")
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := specutils.ReadSpecFromFile(dir, f, &config.Config{AllowRootfsTarAnnotation: true})
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range want.Mounts {
				if m.Source != "" && !filepath.IsAbs(m.Source) {
					want.Mounts[i].Source = filepath.Join(dir, m.Source) // as the parser does
				}
			}
			if !reflect.DeepEqual(got, want) {
				g, _ := json.Marshal(got)
				w, _ := json.Marshal(want)
				t.Errorf("read\n%s\nwant\n%s", g, w)
			}
		})
	}
}
