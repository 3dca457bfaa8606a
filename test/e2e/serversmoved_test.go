package e2e

import (
	"os"
	"testing"

	"github.com/bothy-dev/bothy"
)

// servers starts PostgreSQL with a load, Redis, and programs of Node.js and Java that count by timers.
const servers = `mkdir -p /tmp/work && cd /tmp/work && set -e
B=$(echo /usr/lib/postgresql/*/bin)
$B/initdb -D pg >/dev/null
$B/pg_ctl -D pg -w -o '-k /tmp -p 5499' -l pg.log start >/dev/null
$B/pgbench -h /tmp -p 5499 -q -i postgres 2>/dev/null
setsid -f $B/pgbench -h /tmp -p 5499 -c 4 -T 7200 postgres >bench.log 2>&1
redis-server --port 6390 --daemonize yes --dir $PWD >/dev/null
setsid -f sh -c 'while :; do redis-cli -p 6390 incr n; sleep 0.05; done' >/dev/null 2>&1
cat >c.js <<'END'
let n = 0; setInterval(() => n++, 20);
require("http").createServer((q, r) => r.end(n + "\n")).listen(8091);
END
setsid -f node c.js >node.log 2>&1
cat >C.java <<'END'
import com.sun.net.httpserver.*; import java.net.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*;
public class C { public static void main(String[] a) throws Exception {
  var n = new AtomicLong(); var s = HttpServer.create(new InetSocketAddress(8092), 0);
  Executors.newScheduledThreadPool(2).scheduleAtFixedRate(n::incrementAndGet, 0, 20, TimeUnit.MILLISECONDS);
  s.createContext("/", x -> { var b = (n.get() + "\n").getBytes(); x.sendResponseHeaders(200, b.length); x.getResponseBody().write(b); x.close(); });
  s.start(); } }
END
javac C.java; setsid -f java -Xmx128m C >java.log 2>&1`

// serversGoOn ends with 0 if all of them go on: what they count goes up, and each transaction of the
// load is in all tables or in none.
const serversGoOn = `cd /tmp/work
sql() { psql -h /tmp -p 5499 -qAt postgres -c "$1"; }
postgres() { sql 'select count(*) from pgbench_history'; }
redis() { redis-cli -p 6390 get n; }
node() { curl -sf localhost:8091; }
java() { curl -sf localhost:8092; }
for of in postgres redis node java; do
	for i in $(seq 600); do was=$($of 2>/dev/null) && [ -n "$was" ] && break; sleep 0.1; done
	for i in $(seq 600); do is=$($of) && [ "$is" -gt "$was" ] && break; sleep 0.1; done
	[ "$is" -gt "$was" ] || { echo "$of stands still at $is"; tail -n 5 pg.log bench.log node.log java.log; exit 1; }
done
sums=$(sql 'select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history)')
[ "$(echo "$sums" | tr '|' '\n' | sort -u | wc -l)" = 1 ] || { echo "the sums are $sums"; exit 1; }
[ "$(redis-cli -p 6390 save)" = OK ] || exit 1
! grep -E 'PANIC|FATAL' pg.log`

// Servers under load notice nothing of a pause, a fork, a rollback or a move.
func TestProgramsGoOnThroughPauseForkRollbackAndMove(t *testing.T) {
	t.Parallel()
	if os.Getenv("BOTHY_TEST_LONG") == "" && os.Getenv("BOTHY_TEST_PROGRAMS") == "" {
		t.Skip("only `make test-programs` and the long tests download servers")
	}
	hosts := newHostsWith(t, func(_ int, settings, store string) (string, string) {
		return settings + "network:\n  trust_host_ca: true\n", store
	}, "one", "two")
	one := hosts[0]
	one.ensureTemplate(t, debian)
	b := one.boxOn(t, "one", bothy.SandboxCreate{Template: debian, CPU: 2, MemoryMB: 2048, DiskMB: 8192, TimeoutSeconds: new(int),
		Network: &bothy.Network{Mode: bothy.NetworkRestricted}})
	if !b.lineWithin(t, installs, "sudo apt-get -q update && sudo DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends postgresql redis-server nodejs default-jdk-headless") ||
		!b.lineWithin(t, installs, servers) {
		t.FailNow()
	}
	check := func(what string, b *box) {
		t.Helper()
		if !b.lineWithin(t, installs, serversGoOn) {
			t.Fatalf("that was %s", what)
		}
	}
	check("at the beginning", b)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}))
	must(one.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}))
	check("after a pause", b)
	forks, err := one.Snapshots.Fork(t.Context(), b.id, bothy.ForkRequest{Count: 1})
	must(forks, err)
	fork := *b
	fork.id = forks[0].ID
	check("in a fork", &fork)
	must(nil, one.Sandboxes.Terminate(t.Context(), fork.id))
	check("after a fork", b)
	kept, err := one.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{})
	must(kept, err)
	check("after a snapshot", b)
	must(one.Snapshots.Rollback(t.Context(), b.id, kept.ID))
	check("after a rollback", b)
	for _, host := range []string{"two", "one"} {
		b.moveTo(host)
		check("after a move to host "+host, b)
	}
}
