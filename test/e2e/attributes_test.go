package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/bothy-dev/bothy"
)

// attributes sets an extended attribute on a file, and capabilities on two programs: one set that
// sandboxes have, and one that they lack.
const attributes = `import os, shutil
open("/srv/marked", "w").write("x")
os.setxattr("/srv/marked", "user.colour", b"green\xff")
for name, bits in ("able", [0x80, 0x04]), ("raw", [0, 0x20]):
    shutil.copy(os.path.realpath("/bin/grep"), "/srv/" + name)
    os.setxattr("/srv/" + name, "security.capability", bytes([1, 0, 0, 2] + bits) + bytes(14))`

// attributesSeen prints what an unprivileged user sees of them.
const attributesSeen = `cd /srv && python3 -c 'import os
print(os.listxattr("marked"), os.getxattr("marked", "user.colour"), os.listxattr("/etc/hostname"))
try: os.getxattr("marked", "user.other")
except OSError as e: print(e.strerror)
' && for program in grep ./able ./raw; do $program CapEff /proc/self/status; done`

const attributesWanted = `['user.colour'] b'green\xff' []
No data available
CapEff:	0000000000000000
CapEff:	0000000000000480
CapEff:	0000000000000000`

// Attributes that a build sets on files exist in sandboxes, and survive a change of the file and a
// snapshot of the files.
func TestAttributesOfFiles(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("attributes-%d", os.Getpid())
	file := "FROM " + templateName + "\nUSER root\nRUN <<END\n#!/usr/bin/env python3\n" + attributes + "\nEND\nRUN echo y >>/srv/marked\nUSER user"
	if b, log := shared.built(t, bothy.BuildRequest{Name: name, Dockerfile: file}); b.State != bothy.BuildSucceeded {
		t.Fatalf("%+v\n%s", b, log)
	}
	b := newBox(t, bothy.SandboxCreate{Template: name})
	if got := b.sh("", attributesSeen); got != attributesWanted {
		t.Errorf("a sandbox prints\n%s", got)
	}
	b.sh("root", "echo z >>/srv/marked")
	if _, err := b.s.Snapshots.Pause(b.ctx, b.id, bothy.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.s.Snapshots.Resume(b.ctx, b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.sh("", "cat /srv/marked | tr -d '\\n'; echo; "+attributesSeen); got != "xyz\n"+attributesWanted {
		t.Errorf("after a snapshot of its files it prints\n%s", got)
	}
	if err := b.s.Sandboxes.Terminate(b.ctx, b.id); err != nil {
		t.Fatal(err)
	}
}
