package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// capture makes a template that is removed when the test ends.
func (b *box) capture(req bothy.TemplateCapture) *bothy.Template {
	b.Helper()
	t, err := b.s.Templates.CreateTemplate(b.ctx, b.id, req)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := b.s.Templates.RemoveTemplate(context.Background(), req.Name); err != nil && bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
			b.Error(err)
		}
	})
	return t
}

// setUp are changes that a user makes by hand, and seen prints their result.
const (
	setUp = `set -e
mkdir -p /opt/app /var/empty && echo hello > /opt/app/greeting && chmod 640 /opt/app/greeting && chown user:user /opt/app/greeting
ln -s greeting /opt/app/link && ln /opt/app/greeting /opt/app/hard
rm -r /usr/share/doc /etc/debian_version; mkdir /usr/share/doc && echo new > /usr/share/doc/new
printf '#!/bin/sh\necho tool\n' > /usr/local/bin/tool && chmod 4755 /usr/local/bin/tool`
	seen = `stat -c '%n %a %U %h %F' /opt/app/* /usr/local/bin/tool /var/empty; cat /opt/app/link; tool; ls /usr/share/doc; ls /etc/debian_version 2>&1; python3 -c 'print(6*7)'; whoami; pwd`
)

func TestATemplateIsCapturedFromASandbox(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{Env: map[string]string{"TOKEN": "of-this-sandbox"}})
	b.sh("root", setUp)
	want := b.sh("", seen)
	made := b.capture(bothy.TemplateCapture{Name: "captured/app:v3", Description: "by hand"})
	if made.Name != "captured/app" || made.Tag != "v3" || made.Project != "" || made.SizeBytes == 0 {
		t.Errorf("made %+v", made)
	}
	if _, err := b.s.Sandboxes.Get(b.ctx, b.id); err != nil {
		t.Error(err)
	}
	if got := b.sh("", seen); got != want {
		t.Errorf("the original has changed: %s", got)
	}
	c := newBox(t, bothy.SandboxCreate{Template: "captured/app:v3"})
	if got := c.sh("", seen); got != want {
		t.Errorf("a new sandbox has:\n%s\nwant, as in the original:\n%s", got, want)
	}
	if got := c.sh("", "hostname; env"); strings.Contains(got, "of-this-sandbox") || strings.Contains(got, b.sh("", "hostname")) {
		t.Errorf("it has data of the original: %s", got)
	}
	// Moving a tag does not affect a running sandbox, even if it is paused and resumed.
	b.sh("root", "echo bye > /opt/app/greeting")
	if _, err := b.s.Snapshots.Pause(b.ctx, b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	moved := b.capture(bothy.TemplateCapture{Name: "captured/app:v3"}) // from a paused sandbox
	if moved.Digest == made.Digest {
		t.Error("the tag did not move")
	}
	if _, err := c.s.Snapshots.Pause(c.ctx, c.id, bothy.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.s.Snapshots.Resume(c.ctx, c.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := c.sh("", "cat /opt/app/greeting"); got != "hello" {
		t.Errorf("the greeting is %q", got)
	}
	d := newBox(t, bothy.SandboxCreate{Template: "captured/app@" + moved.Digest})
	if got := d.sh("", "cat /opt/app/greeting"); got != "bye" {
		t.Errorf("the greeting is %q", got)
	}
	err := c.s.Templates.RemoveTemplate(c.ctx, "captured/app")
	if bothy.ErrorCode(err) != bothy.CodeTemplateInUse {
		t.Errorf("a template in use was removed: %v", err)
	}
	for _, x := range []*box{b, c, d} {
		if err := x.s.Sandboxes.Terminate(x.ctx, x.id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATemplateKeepsProcesses(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 256})
	b.sh("", "nohup sleep 54321 >/dev/null 2>&1 & echo set-up > /workspace/file")
	made := b.capture(bothy.TemplateCapture{Name: "captured-live", Memory: true})
	if made.Memory == nil || made.Memory.MemoryMB != 256 {
		t.Fatalf("made %+v", made)
	}
	c := newBox(t, bothy.SandboxCreate{Template: "captured-live", Env: map[string]string{"MINE": "yes"}})
	if got := c.sh("", "cat /workspace/file; pgrep -xc sleep; echo $MINE"); got != "set-up\n1\nyes" {
		t.Errorf("a new sandbox prints %q", got)
	}
	if c.sh("", "hostname") == b.sh("", "hostname") {
		t.Error("both have the same host name")
	}
	_, err := b.s.create(b.ctx, bothy.SandboxCreate{Template: "captured-live", MemoryMB: 512})
	if bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a sandbox of another size: %v", err)
	}
	err = b.s.Snapshots.DeleteSnapshot(b.ctx, made.Memory.SnapshotID)
	if bothy.ErrorCode(err) != bothy.CodeSnapshotInUse {
		t.Errorf("deleting the template's memory snapshot: %v", err)
	}
	if err := b.s.Templates.RemoveTemplate(b.ctx, "captured-live"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.s.Snapshots.Snapshot(b.ctx, made.Memory.SnapshotID); bothy.ErrorCode(err) != bothy.CodeSnapshotNotFound {
		t.Errorf("the memory snapshot still exists: %v", err)
	}
}

// Memory is restored with the image that it was written with, even if that has another name by now.
func TestProcessesOfAnImageThatWasRenamed(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	b.sh("", "echo same > /workspace/file")
	one := b.capture(bothy.TemplateCapture{Name: "image-of-two-names"})
	two := b.capture(bothy.TemplateCapture{Name: "another-name"})
	if one.Digest != two.Digest {
		t.Fatalf("the images are %s and %s", one.Digest, two.Digest)
	}
	c := newBox(t, bothy.SandboxCreate{Template: one.Name, MemoryMB: 256})
	c.sh("", "nohup sleep 54321 >/dev/null 2>&1 &")
	c.capture(bothy.TemplateCapture{Name: "its-processes", Memory: true})
	if _, err := c.s.Snapshots.Pause(c.ctx, c.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Templates.RemoveTemplate(b.ctx, one.Name); err != nil {
		t.Fatal(err)
	}
	d := newBox(t, bothy.SandboxCreate{Template: "its-processes"})
	if got := d.sh("", "cat /workspace/file; pgrep -xc sleep"); got != "same\n1" {
		t.Errorf("a new sandbox prints %q", got)
	}
	back, err := c.s.Snapshots.Resume(c.ctx, c.id, bothy.ResumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if back.Resumed == nil || back.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("it was resumed from %+v", back.Resumed)
	}
	if got := c.sh("", "pgrep -xc sleep"); got != "1" {
		t.Errorf("the resumed sandbox prints %q", got)
	}
	if err := d.s.Sandboxes.Terminate(d.ctx, d.id); err != nil {
		t.Fatal(err)
	}
	err = b.s.Templates.RemoveTemplate(b.ctx, two.Name)
	if bothy.ErrorCode(err) != bothy.CodeTemplateInUse {
		t.Errorf("the last name of an image in use was removed: %v", err)
	}
	for _, sandbox := range []*box{c, b} {
		if err := sandbox.s.Sandboxes.Terminate(sandbox.ctx, sandbox.id); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.s.Templates.RemoveTemplate(b.ctx, "its-processes"); err != nil {
		t.Error(err)
	}
}
