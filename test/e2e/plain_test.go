package e2e

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// Programs see the machine as a plain Debian, whether they are started without input, with input, or in
// a terminal.
func TestAPlainLinux(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	for script, want := range map[string]string{
		"ulimit -Sn": "1024", "ulimit -Hn": "1048576", "ulimit -Sn 8192 && ulimit -Sn": "8192", "ulimit -s": "8192", "ulimit -l": "8192",
		"umask": "0022", "echo $LANG": "C.UTF-8", "cat /proc/sys/fs/inotify/max_user_instances": "128",
		"(($(cat /proc/sys/fs/inotify/max_user_watches) >= 8192)) && echo enough": "enough",
		"readlink /etc/mtab": "../proc/self/mounts", "stat -c %a /run/lock /tmp /dev/shm": "1777\n1777\n1777",
		"cat < /dev/stdin | wc -c": "0", "ls -d /dev/fd/0 /dev/full /dev/tty /dev/ptmx /dev/pts": "/dev/fd/0\n/dev/full\n/dev/ptmx\n/dev/pts\n/dev/tty",
		"getent hosts $(hostname) | wc -l": "1", "getent ahostsv4 localhost | head -1 | cut -d' ' -f1": "127.0.0.1",
	} {
		if got := b.sh("", script); strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	req := line("", "ulimit -Sn")
	req.Stdin = "x"
	if r := b.try(req); strings.TrimSpace(r.Stdout) != "1024" {
		t.Errorf("with input: %+v", r)
	}
	// Closing all possible descriptors is fast.
	if r := b.try(line("", "time -p python3 -c 'import os, resource; os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])'")); r.ExitCode != 0 || r.DurationMS > 5000 {
		t.Errorf("%+v", r)
	}
}
