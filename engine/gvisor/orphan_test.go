package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/engine"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// The environment of leave.
const (
	leaveEnv       = "GVISOR_TEST_LEAVE"
	leaveParentEnv = "GVISOR_TEST_PARENT"
	leaveImagesEnv = "GVISOR_TEST_IMAGES"
)

// leave is a server that starts a machine, freezes it, and dies.
func leave(dir string) {
	images := strings.Split(os.Getenv(leaveImagesEnv), ":")
	built.sentry, built.guest, built.rootfs = images[0], images[1], images[2]
	e, err := gvisor.New(gvisor.Options{Dir: filepath.Join(dir, "engine"), Sentry: built.sentry, CgroupParent: os.Getenv(leaveParentEnv)})
	if err == nil {
		m, serr := e.Start(context.Background(), spec("left"))
		if err = serr; err == nil {
			err = m.Freeze(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// left runs a server with a folder that leaves a machine behind.
func left(t *testing.T, dir, parent string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaveEnv+"="+dir, leaveParentEnv+"="+parent, leaveImagesEnv+"="+strings.Join([]string{built.sentry, built.guest, built.rootfs}, ":"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestOrphans looks for machines whose server's folder was deleted. Only those of dead servers are orphans,
// and only if the folder is gone.
func TestOrphans(t *testing.T) {
	deleted, deletedParent := newPlace(t)
	left(t, deleted, deletedParent)
	kept, keptParent := newPlace(t)
	left(t, kept, keptParent)
	living, livingParent := newPlace(t)
	m, err := newEngine(t, living, livingParent).Start(t.Context(), spec("living"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	t.Cleanup(func() {
		if _, err := newEngine(t, kept, keptParent).Sweep(context.Background(), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{deleted, living} {
		if err := os.RemoveAll(filepath.Join(dir, "engine")); err != nil {
			t.Fatal(err)
		}
	}
	find := func() (mine []engine.Orphan) {
		t.Helper()
		all, err := engine.Orphans()
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(o engine.Orphan) bool {
			return !slices.ContainsFunc([]string{deleted, kept, living}, func(dir string) bool { return strings.HasPrefix(o.Folder, dir) })
		})
	}
	orphans := find()
	if len(orphans) != 1 || orphans[0].Folder != filepath.Join(deleted, "engine", "left") {
		t.Fatalf("the orphans are %+v", orphans)
	}
	if err := orphans[0].End(); err != nil {
		t.Fatal(err)
	}
	if again := find(); len(again) > 0 {
		t.Errorf("the remaining orphans are %+v", again)
	}
	for _, pid := range orphans[0].PIDs {
		if state := processState(pid); state != "" && state != "Z" {
			t.Errorf("process %d of an orphan that was ended is in state %s", pid, state)
		}
	}
}

// processState is a letter, or empty when the process is gone.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}
