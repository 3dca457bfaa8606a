package snapshots

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// busy are programs that work all the time. Each writes a line to a file with its process id and a
// number that it has only in memory.
var busy = map[string]string{
	"node server": `exec node -e '
const http = require("http"), fs = require("fs")
let served = 0
http.createServer((_, res) => { served++; res.end("ok") }).listen(8001, "127.0.0.1", function ask() {
  http.get("http://127.0.0.1:8001/", res => { res.resume(); res.on("end", () => {
    fs.writeFileSync("/tmp/busy/node server.new", process.pid + " " + served)
    fs.renameSync("/tmp/busy/node server.new", "/tmp/busy/node server")
    setTimeout(ask, 5)
  })}).on("error", () => setTimeout(ask, 5))
})'`,
	"python server": `exec python3 -c '
import http.server, os, threading, time, urllib.request
served = 0
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        served += 1
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8002), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    try: urllib.request.urlopen("http://127.0.0.1:8002/", timeout=5).read()
    except OSError: pass
    with open("/tmp/busy/python server.new", "w") as f: f.write(f"{os.getpid()} {served}")
    os.rename("/tmp/busy/python server.new", "/tmp/busy/python server")
    time.sleep(0.005)'`,
	"database": `exec python3 -c '
import os, sqlite3, time
db = sqlite3.connect("/tmp/busy.db", isolation_level=None)
db.execute("pragma journal_mode=wal"); db.execute("create table t (n integer primary key, double integer)")
n = 0
while True:
    n += 1
    db.execute("begin"); db.execute("insert into t values (?, ?)", (n, 2 * n)); db.execute("commit")
    with open("/tmp/busy/database.new", "w") as f: f.write(f"{os.getpid()} {n}")
    os.rename("/tmp/busy/database.new", "/tmp/busy/database")
    time.sleep(0.005)'`,
	"shell": `i=0; while :; do i=$((i+1)); echo "$$ $i" >/tmp/busy/shell.new; mv /tmp/busy/shell.new /tmp/busy/shell; sleep 0.01; done`,
	// Many short processes, pipes and files: gcc where there is one.
	"compiler": `i=0; mkdir -p /tmp/made; cd /tmp/made
while :; do i=$((i+1))
if command -v gcc >/dev/null; then
  echo "int main(void) { return $i % 7; }" >a.c && gcc -pipe a.c -o a; ./a; got=$?
else
  echo "import sys; sys.exit($i % 7)" >a.py && python3 -m compileall -f -q -b a.py && python3 a.pyc; got=$?
fi
[ $got -eq $((i % 7)) ] || { echo "$i gave $got" >/tmp/busy.wrong; exit; }
echo "$$ $i" >/tmp/busy/compiler.new; mv /tmp/busy/compiler.new /tmp/busy/compiler; done`,
}

// kernelWork counts in a thread of the code kernel, and kernelCount prints the count.
const (
	kernelWork = `
import os, threading, time
counted = 0
def count():
    global counted
    while True:
        counted += 1
        time.sleep(0.005)
threading.Thread(target=count, daemon=True).start()`
	kernelCount = `print(os.getpid(), counted)`
)

type progress struct{ pid, n int }

// far returns the progress of all busy programs.
func (b *box) far() map[string]progress {
	b.Helper()
	at := map[string]progress{"kernel": b.parseFar(b.say(kernelCount))}
	for line := range strings.Lines(b.sh(`cd /tmp/busy; for f in *[!w]; do case $f in *.new) ;; *) echo "$f: $(cat "$f")";; esac; done`)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		at[name] = b.parseFar(rest)
	}
	return at
}

func (b *box) parseFar(line string) (p progress) {
	b.Helper()
	if _, err := fmt.Sscan(line, &p.pid, &p.n); err != nil {
		b.Fatalf("a program reports %q", line)
	}
	return p
}

func (b *box) say(code string) string {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	r, err := b.s.Code.RunCode(ctx, b.id, bothy.CodeRequest{Code: code})
	if err != nil || r.Error != nil {
		b.Fatalf("%s: %+v, %v", code, r, err)
	}
	return strings.TrimSpace(r.Stdout)
}

// allContinue checks that every program is the same process, has not lost progress, and continues.
func (b *box) allContinue(who string, since map[string]progress) {
	b.Helper()
	now := b.far()
	for name, was := range since {
		if is := now[name]; is.pid != was.pid || is.n < was.n {
			b.Errorf("%s: the %s was %+v and is %+v", who, name, was, is)
		}
	}
	var still map[string]progress
	defer func() {
		if len(still) > 0 {
			b.Logf("%s: these do not continue: %+v", who, still)
		}
	}()
	eventually(b.T, "have all go on in "+who, func() bool {
		still = map[string]progress{}
		for name, p := range b.far() {
			if p.n <= now[name].n {
				still[name] = p
			}
		}
		return len(still) == 0
	})
	if got := b.sh(`test ! -e /tmp/busy.wrong || cat /tmp/busy.wrong; python3 -c '
import sqlite3
db = sqlite3.connect("/tmp/busy.db")
print(db.execute("pragma integrity_check").fetchone()[0], db.execute("select count(*) = max(n) and min(double = 2*n) from t").fetchone()[0])'`); got != "ok 1" {
		b.Errorf("%s: the results are wrong: %s", who, got)
	}
}

// TestBusySandboxIsCopied takes a live snapshot of a sandbox with many kinds of busy programs, and makes a
// copy. In both, every program continues from where it was.
func TestBusySandboxIsCopied(t *testing.T) {
	t.Parallel()
	ctx, cancel := within(t)
	defer cancel()
	if _, err := shared.Templates.Template(ctx, "python-3.12"); bothy.ErrorCode(err) == bothy.CodeTemplateNotFound {
		t.Skip("the template is missing; make test builds it")
	}
	b := shared.newBox(t, bothy.SandboxCreate{Template: "python-3.12", MemoryMB: 1024, CPU: 2})
	b.sh("mkdir /tmp/busy")
	programs := 1
	for name, line := range busy {
		if name == "node server" && b.sh("command -v node || echo none") == "none" {
			continue
		}
		programs++
		b.spawn(line)
	}
	b.say(kernelWork)
	eventually(t, "have all begin", func() bool { return len(b.far()) == programs })

	before := b.far()
	n := b.snapshot("busy")
	b.allContinue("the original", before)
	c := b.s.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID})
	c.allContinue("the copy", before)
	// They are independent: ending the programs of one does not affect the other.
	for name, p := range c.far() {
		if name != "kernel" {
			c.sh("kill -9 " + strconv.Itoa(p.pid))
		}
	}
	b.allContinue("the original", before)
}
