package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestFolderEditedByHand damages a snapshot's folder in the ways that a person could, and repairs it.
func TestFolderEditedByHand(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	n := b.pause()
	dir := filepath.Join(b.s.Home, "snapshots", n.ID)
	manifest, files := filepath.Join(dir, "manifest.json"), filepath.Join(dir, "files.tar")
	pages := filepath.Join(dir, "memory", "pages.img")
	replace := func(path, old, by string) func() error {
		return func() error {
			text, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(text), old) {
				err = errors.New("there is no " + old)
			}
			return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o600))
		}
	}
	for what, try := range map[string]struct {
		path   string
		damage func() error
	}{
		"no manifest":            {manifest, func() error { return os.Remove(manifest) }},
		"an empty manifest":      {manifest, func() error { return os.Truncate(manifest, 0) }},
		"half a manifest":        {manifest, func() error { return os.Truncate(manifest, 100) }},
		"another checksum":       {manifest, replace(manifest, `"crc32c": "`, `"crc32c": "0`)},
		"a part that climbs out": {manifest, replace(manifest, `"memory/pages.img"`, `"../../pages.img"`)},
		"a part that is hidden":  {manifest, replace(manifest, `"memory/pages.img"`, `"files.tar"`)},
		"no pages":               {pages, func() error { return os.Remove(pages) }},
		"fewer pages":            {pages, func() error { return os.Truncate(pages, 4096) }},
		"more pages":             {pages, func() error { return os.Truncate(pages, 1<<30) }},
		"other files":            {files, replace(files, "tmp/counter", "etc/counter")},
	} {
		good, err := os.ReadFile(try.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := try.damage(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		ctx, cancel := within(t)
		_, err = b.s.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{})
		cancel()
		refused(t, what, err, bothy.CodeSnapshotDamaged)
		b.is(bothy.StatePaused)
		if err := b.s.Leftovers(b.id); err != nil {
			t.Errorf("%s: files are left: %v", what, err)
		}
		if err := os.WriteFile(try.path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.resume(b.id)
	b.continued(before)
}

// TestHostReboots ends everything that would end with a reboot of the host.
func TestHostReboots(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	paused, running := s.newBox(t, bothy.SandboxCreate{}), s.newBox(t, bothy.SandboxCreate{})
	unsaved, given := s.newBox(t, bothy.SandboxCreate{}), s.newBox(t, bothy.SandboxCreate{OnHostLoss: bothy.HostLossFail})
	given.snapshot("")
	paused.startCounter()
	before := paused.counter()
	paused.pause()
	snapshot := running.snapshot("")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end", func() bool { return len(s.Processes("")) == 0 })
	// These files are useless after a reboot, and may be on a file system
	// in memory.
	if err := os.RemoveAll(filepath.Join(s.Home, "machines")); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	for what, b := range map[string]*box{"has no snapshot": unsaved, "is to fail": given} {
		if sb := b.get(); sb.State != bothy.StateFailed || sb.Ended == nil || sb.Ended.Reason != bothy.EndHostRestart {
			t.Errorf("the running sandbox with %s is %s, %+v", what, sb.State, sb.Ended)
		}
	}
	if sb := running.get(); sb.State != bothy.StatePaused || sb.HostLoss == nil || sb.HostLoss.SnapshotID != snapshot.ID {
		t.Errorf("the running sandbox with a snapshot is %s, %+v", sb.State, sb.HostLoss)
	}
	running.resume(running.id)
	running.sh("true")
	paused.is(bothy.StatePaused)
	paused.resume(paused.id)
	paused.continued(before)
	s.newBox(t, bothy.SandboxCreate{SnapshotID: snapshot.ID}).sh("true")
}
