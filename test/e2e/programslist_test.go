package e2e

const (
	debian = "debian-12"
	python = "python-3.12"
	node   = "node-22"
)

// tried are the rows of docs/compatibility.md. A line begins in /tmp/work, ends at its first failure, and
// leaves nothing running.
var tried = []program{
	{name: "Bash", template: debian, vm: true, did: "pipes, process substitution, traps, and a co-process",
		line: `diff <(seq 3) <(printf '1\n2\n3\n'); coproc cat; echo hi >&"${COPROC[1]}"; read -r x <&"${COPROC[0]}"; test "$x" = hi; (trap 'exit 0' TERM; kill -TERM $BASHPID; exit 1)`},
	{name: "GCC and Make", template: debian, vm: true, did: "compiled a program with threads by a makefile, and ran it",
		line: `printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p) { *(int *)p = 42; return p; }\nint main(void) { int n = 0; pthread_t t; pthread_create(&t, 0, f, &n); pthread_join(t, 0); return n != 42; }\n' >threads.c
printf 'threads: threads.c\n\tgcc -O2 -pthread -o threads threads.c\n' >Makefile && make -s && ./threads`},
	{name: "Git", template: debian, vm: true, did: "committed, branched, merged, cloned and collected garbage",
		line: `rm -rf a b; git init -q -b main a; cd a; git config user.name x; git config user.email x@x.x; echo 1 >f; git add f; git commit -qm 1; git switch -qc side; echo 2 >g; git add g; git commit -qm 2; git switch -q main; git merge -q --no-edit side; git gc -q; git clone -q . ../b; test -f ../b/g`},
	{name: "rsync", template: debian, vm: true, did: "copied a tree with hard and symbolic links",
		line: `rm -rf from to; mkdir from; echo x >from/a; ln from/a from/b; ln -s a from/c; rsync -aH from/ to/; test to/a -ef to/b; test "$(readlink to/c)" = a`},
	{name: "tmux", template: debian, vm: true, did: "ran a command in a session and read its screen",
		line: `tmux -L t new-session -d -x 80 -y 24 'echo on-screen; tmux -L t wait -S shown; sleep 100'; tmux -L t wait shown; for i in $(seq 100); do tmux -L t capture-pane -p | grep -q on-screen && break; sleep 0.1; done; tmux -L t capture-pane -p | grep -q on-screen; tmux -L t kill-server`},
	{name: "GnuPG", template: debian, vm: true, did: "made a key, signed and verified",
		line: `export GNUPGHOME=$(mktemp -d); gpg -q --batch --passphrase '' --quick-gen-key t@example.org ed25519 sign; echo hi >m; gpg -q --batch --yes --sign m; gpg -q --verify m.gpg; gpgconf --kill all`},
	{name: "OpenSSL", template: debian, vm: true, did: "made a certificate, and spoke TLS with itself",
		line: `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out c -subj /CN=localhost -days 2 2>/dev/null
openssl s_server -accept 4433 -key k -cert c -www -naccept 1 >/dev/null & for i in $(seq 100); do curl -sk https://localhost:4433/ >page && break; sleep 0.1; done; grep -q TLSv1.3 page; wait`},
	{name: "Perl", template: debian, vm: true, did: "matched, forked and waited",
		line: `perl -e '$p = fork // die; exit 7 unless $p; waitpid $p, 0; exit(($? >> 8) == 7 && "2026" =~ /^(\d+)$/ ? 0 : 1)'`},
	{name: "Python", template: python, vm: true, did: "processes, asyncio with subprocesses, and SQLite with four writers",
		line: `cat >t.py <<'END'
import asyncio, multiprocessing as mp, os, sqlite3, sys

def write(n):
    db = sqlite3.connect("t.db", timeout=60)
    for i in range(25):
        with db:
            db.execute("insert into t values (?)", (n * 100 + i,))

async def run():
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(input())", stdin=-1, stdout=-1)
    return (await asyncio.wait_for(p.communicate(b"hi\n"), 60))[0]

if __name__ == "__main__":
    if os.path.exists("t.db"): os.remove("t.db")
    with sqlite3.connect("t.db") as db: db.execute("create table t (n)")
    with mp.Pool(4) as pool: pool.map(write, range(4))
    assert sqlite3.connect("t.db").execute("select count(*) from t").fetchone() == (100,)
    assert asyncio.run(run()) == b"hi\n"
END
python3 t.py`},
	{name: "NumPy, pandas and Matplotlib", template: python, long: true, did: "solved equations, grouped a table, and drew a chart",
		line: `python3 -c 'import numpy as np, pandas as pd, matplotlib; matplotlib.use("agg"); import matplotlib.pyplot as p; assert np.allclose(np.linalg.solve([[2.0, 0], [0, 4]], [2, 4]), 1); assert pd.DataFrame({"a": [1, 1], "b": [2, 3]}).groupby("a").b.sum()[1] == 5; p.plot([1, 2]); p.savefig("c.png")'; test -s c.png`},
	{name: "Node.js", template: node, vm: true, did: "worker threads, a child process, a watched file, and HTTP with itself",
		line: `cat >t.mjs <<'END'
import { Worker } from "node:worker_threads"; import { execFileSync } from "node:child_process"; import http from "node:http"; import fs from "node:fs"; import { once } from "node:events";
const [n] = await once(new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true }), "message");
if (n !== 42 || execFileSync("echo", ["hi"]).toString() !== "hi\n") process.exit(1);
fs.writeFileSync("w", ""); const w = fs.watch("w"); const changed = once(w, "change"); fs.appendFileSync("w", "x"); await changed; w.close();
const s = http.createServer((q, r) => r.end("ok")).listen(0); await once(s, "listening");
if ((await (await fetch("http://localhost:" + s.address().port)).text()) !== "ok") process.exit(1);
process.exit(0);
END
node t.mjs`},

	{name: "PostgreSQL", template: debian, apt: "postgresql", did: "made a cluster, ran pgbench with four clients, and stopped",
		line: `B=$(echo /usr/lib/postgresql/*/bin); rm -rf pg; $B/initdb -D pg >/dev/null; $B/pg_ctl -D pg -w -o '-k /tmp -p 5499' -l pg.log start >/dev/null; $B/pgbench -h /tmp -p 5499 -q -i postgres 2>/dev/null; $B/pgbench -h /tmp -p 5499 -c 4 -t 50 postgres >/dev/null 2>&1; $B/pg_ctl -D pg -w stop >/dev/null`},
	{name: "MariaDB", template: debian, apt: "mariadb-server", did: "started, made a table, and answered a query",
		line: `rm -rf my; mariadb-install-db --datadir=$PWD/my --auth-root-authentication-method=normal >/dev/null 2>&1; mariadbd --no-defaults --datadir=$PWD/my --socket=/tmp/my.sock --skip-networking >my.log 2>&1 & for i in $(seq 300); do mariadb-admin --no-defaults -S /tmp/my.sock -u root ping >/dev/null 2>&1 && break; sleep 0.2; done
test "$(mariadb --no-defaults -S /tmp/my.sock -u root -N -e 'create database d; create table d.t (n int); insert into d.t values (41); select n + 1 from d.t')" = 42; mariadb-admin --no-defaults -S /tmp/my.sock -u root shutdown; wait`},
	{name: "Redis", template: debian, apt: "redis-server", did: "saved a dump in the background and loaded it again",
		line: `rm -f dump.rdb; redis-server --port 6390 --daemonize yes --dir $PWD >/dev/null; for i in $(seq 100); do redis-cli -p 6390 ping >/dev/null 2>&1 && break; sleep 0.1; done; redis-cli -p 6390 set a b >/dev/null; redis-cli -p 6390 bgsave >/dev/null; redis-cli -p 6390 shutdown; test -s dump.rdb
redis-server --port 6390 --daemonize yes --dir $PWD >/dev/null; for i in $(seq 100); do redis-cli -p 6390 ping >/dev/null 2>&1 && break; sleep 0.1; done; test "$(redis-cli -p 6390 get a)" = b; redis-cli -p 6390 shutdown`},
	{name: "SQLite", template: debian, apt: "sqlite3", did: "wrote with a write-ahead log and full-text search",
		line: `rm -f s.db; test "$(sqlite3 s.db 'pragma journal_mode=wal; create virtual table t using fts5(x); insert into t values ("a bothy in the hills"); select count(*) from t("bothy");' | tail -n 1)" = 1`},
	{name: "nginx", template: debian, apt: "nginx-light", did: "served a file from two workers",
		line: `mkdir -p www; echo hello >www/f; printf 'worker_processes 2; pid %s/n.pid; error_log %s/n.err; events {} http { access_log off; client_body_temp_path /tmp/n1; proxy_temp_path /tmp/n2; fastcgi_temp_path /tmp/n3; uwsgi_temp_path /tmp/n4; scgi_temp_path /tmp/n5; server { listen 8099; root %s/www; } }' $PWD $PWD $PWD >n.conf; /usr/sbin/nginx -c $PWD/n.conf; test "$(curl -s localhost:8099/f)" = hello; /usr/sbin/nginx -c $PWD/n.conf -s quit`},
	{name: "OpenSSH", template: debian, apt: "openssh-server", did: "logged in with a key, and copied a file by sftp",
		line: `rm -f hk k*; ssh-keygen -qt ed25519 -N '' -f hk; ssh-keygen -qt ed25519 -N '' -f k; mkdir -p ~/.ssh; chmod 700 ~/.ssh; cat k.pub >>~/.ssh/authorized_keys; chmod 600 ~/.ssh/authorized_keys; sudo mkdir -p /run/sshd; sudo /usr/sbin/sshd -p 2299 -h $PWD/hk -o PidFile=$PWD/sshd.pid
O="-i k -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"; test "$(ssh -p 2299 $O localhost echo in)" = in; echo x >up; scp -q -P 2299 $O up localhost:/tmp/work/down; test -s down; sudo kill $(cat sshd.pid)`},
	{name: "Go", template: debian, apt: "golang-go", did: "compiled a program with goroutines, and ran its tests",
		line: `rm -rf g; mkdir g; cd g; printf 'module m\n' >go.mod; printf 'package m\n\nimport ("sync"; "testing")\n\nfunc TestMany(t *testing.T) { var n int; var mu sync.Mutex; var g sync.WaitGroup; for i := 0; i < 1000; i++ { g.Add(1); go func() { defer g.Done(); mu.Lock(); n++; mu.Unlock() }() }; g.Wait(); if n != 1000 { t.Fatal(n) } }\n' >m_test.go; go test ./...`},
	{name: "Rust", template: debian, apt: "rustc cargo", did: "built a crate with threads by cargo, and ran its tests",
		line: `rm -rf r; cargo new -q --vcs none --lib r; cd r; printf '#[test]\nfn many() { let h: Vec<_> = (0..8).map(|i| std::thread::spawn(move || i)).collect(); assert_eq!(28, h.into_iter().map(|h| h.join().unwrap()).sum::<i32>()); }\n' >src/lib.rs; cargo test -q --offline`},
	{name: "Java", template: debian, apt: "default-jdk-headless", did: "compiled a class, and ran it with a thread pool and the parallel collector",
		line: `printf 'import java.util.stream.*;\npublic class P { public static void main(String[] a) { if (IntStream.range(0, 1000).parallel().sum() != 499500) System.exit(1); } }\n' >P.java; javac P.java; java -XX:+UseParallelGC -cp . P`},
	{name: "Ruby", template: debian, apt: "ruby", did: "threads, a fork, and JSON",
		line: `ruby -rjson -e 'p = fork { exit 3 }; Process.wait p; exit($?.exitstatus == 3 && (1..4).map { |i| Thread.new { i } }.sum(&:value) == 10 && JSON.parse("[1]") == [1] ? 0 : 1)'`},
	{name: "PHP", template: debian, apt: "php-cli", did: "served a page with its own server",
		line: `echo '<?php echo 6 * 7;' >i.php; php -S localhost:8098 >/dev/null 2>&1 & P=$!; for i in $(seq 100); do curl -sf localhost:8098/i.php >page && break; sleep 0.1; done; test "$(cat page)" = 42; kill $P`},
	{name: "Lua", template: debian, apt: "lua5.4", did: "co-routines",
		line: `lua5.4 -e 'local c = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end); assert(c() + c() == 3)'`},
	{name: "Erlang", template: debian, apt: "erlang-base", did: "sent messages between a thousand processes",
		line: `erl -noshell -eval 'S = self(), [spawn(fun() -> S ! I end) || I <- lists:seq(1, 1000)], 500500 = lists:sum([receive X -> X end || _ <- lists:seq(1, 1000)]), halt(0).'`},
	{name: "OCaml", template: debian, apt: "ocaml-nox", did: "compiled to native code",
		line: `echo 'let () = assert (List.fold_left (+) 0 [1; 2; 3] = 6)' >o.ml; ocamlfind ocamlopt -package str o.ml -o o 2>/dev/null || ocamlopt o.ml -o o; ./o`},
	{name: "Fortran", template: debian, apt: "gfortran", did: "compiled, and ran a loop with OpenMP",
		line: `printf 'program f\n integer :: i, s = 0\n !$omp parallel do reduction(+:s)\n do i = 1, 100\n  s = s + i\n end do\n if (s /= 5050) stop 1\nend program\n' >f.f90; gfortran -fopenmp f.f90 -o f; ./f`},
	{name: "R", template: debian, apt: "r-base-core", did: "fitted a line",
		line: `Rscript -e 'stopifnot(abs(coef(lm(y ~ x, data.frame(x = 1:5, y = 2 * (1:5) + c(.1, -.1, 0, .1, -.1))))[2] - 2) < .1)'`},
	{name: "Common Lisp (SBCL)", template: debian, apt: "sbcl", did: "compiled a function",
		line: `sbcl --noinform --non-interactive --eval '(assert (= 42 (funcall (compile nil (quote (lambda (x) (* x 7)))) 6)))' >/dev/null`},
	{name: "CMake and Ninja", template: debian, apt: "cmake ninja-build g++", did: "configured and built a C++ library and a test, and ran it",
		line: `rm -rf c; mkdir c; cd c; printf 'cmake_minimum_required(VERSION 3.20)\nproject(p CXX)\nadd_library(l l.cc)\nadd_executable(t t.cc)\ntarget_link_libraries(t l)\nenable_testing()\nadd_test(t t)\n' >CMakeLists.txt; echo 'int f() { return 0; }' >l.cc; echo 'int f(); int main() { return f(); }' >t.cc; cmake -G Ninja -B b . >/dev/null; ninja -C b >/dev/null; ctest --test-dir b >/dev/null`},
	{name: "GDB", template: debian, apt: "gdb", did: "stopped at a breakpoint, and attached to a process that ran",
		line: `printf 'int f(int x) { return x + 1; }\nint main(void) { return f(41) != 42; }\n' >d.c; gcc -g d.c -o d; gdb -q -batch -ex 'break f' -ex run -ex 'print x' ./d 2>&1 | grep -q '= 41'; sleep 100 & P=$!; gdb -q -batch -p $P -ex 'info registers rip' 2>&1 | grep -q rip; kill $P`},
	{name: "strace", template: debian, apt: "strace", did: "followed a program and its children",
		line: `strace -f -o s.out sh -c 'cat /etc/hostname; true' >/dev/null; grep -q execve s.out; grep -q /etc/hostname s.out`},
	{name: "Valgrind", template: debian, apt: "valgrind libc6-dbg", did: "found a leak",
		line: `echo 'int main(void) { return __builtin_malloc(10) == 0; }' >v.c; gcc -g -O0 v.c -o v; ! valgrind -q --leak-check=full --error-exitcode=9 ./v 2>/dev/null`},
	{name: "Bubblewrap", template: debian, apt: "bubblewrap", did: "ran a command in new namespaces without a network",
		line: `test "$(bwrap --ro-bind / / --dev /dev --proc /proc --unshare-net --unshare-pid true && echo in)" = in`},
	{name: "cron", template: debian, apt: "cron", did: "started, and accepted a table",
		line: `sudo cron; echo '* * * * * true' | crontab -; crontab -l | grep -q true; sudo pkill -x cron`},
	{name: "inotify-tools", template: debian, apt: "inotify-tools", did: "saw a file being made",
		line: `mkdir -p i; rm -f i/*; (for n in $(seq 100); do touch i/$n; sleep 0.1; done) & inotifywait -qq -t 60 -e create i; kill $!`},
	{name: "FFmpeg", template: debian, apt: "ffmpeg", did: "encoded a second of video",
		line: `ffmpeg -v error -y -f lavfi -i testsrc=duration=1:size=160x120:rate=10 -c:v mpeg4 v.mp4; ffprobe -v error -show_entries format=duration -of csv=p=0 v.mp4 | grep -q '^1\.0'`},
	{name: "ImageMagick", template: debian, apt: "imagemagick", did: "drew a picture and made it smaller",
		line: `convert -size 64x64 gradient:red-blue a.png; convert a.png -resize 50% b.png; identify -format %w b.png | grep -qx 32`},
	{name: "Pandoc", template: debian, apt: "pandoc", did: "made HTML and a Word document from Markdown",
		line: `echo '# Hi' >p.md; pandoc p.md | grep -q '<h1'; pandoc p.md -o p.docx; test -s p.docx`},
	{name: "Graphviz", template: debian, apt: "graphviz", did: "drew a graph",
		line: `echo 'digraph { a -> b }' | dot -Tsvg | grep -q '</svg>'`},

	{name: "Django", template: python, pip: "django", did: "made a project, migrated its database and ran its checks",
		line: `rm -rf dj; django-admin startproject dj; cd dj; python manage.py migrate -v 0; python manage.py check >/dev/null`},
	{name: "FastAPI and Uvicorn", template: python, pip: "fastapi uvicorn", did: "served a request from two worker processes",
		line: `printf 'from fastapi import FastAPI\napp = FastAPI()\n@app.get("/{n}")\ndef f(n: int): return n + 1\n' >fa.py; uvicorn --workers 2 --port 8097 fa:app >/dev/null 2>&1 & P=$!; for i in $(seq 200); do curl -sf localhost:8097/41 >page && break; sleep 0.1; done; test "$(cat page)" = 42; kill $P; wait || true`},
	{name: "scikit-learn", template: python, pip: "scikit-learn", did: "trained a forest with two jobs",
		line: `python -c 'from sklearn.datasets import load_iris; from sklearn.ensemble import RandomForestClassifier as F; x, y = load_iris(return_X_y=True); assert F(n_jobs=2, random_state=0).fit(x, y).score(x, y) > .9'`},
	{name: "Polars and DuckDB", template: python, pip: "polars duckdb pyarrow", did: "wrote Parquet with one, and queried it with the other",
		line: `python -c 'import polars as pl, duckdb; pl.DataFrame({"a": [1, 2, 3]}).write_parquet("p.parquet"); assert duckdb.sql("select sum(a) from \"p.parquet\"").fetchall() == [(6,)]'`},
	{name: "pytest with xdist", template: python, pip: "pytest pytest-xdist", did: "ran tests in four processes",
		line: `printf 'import pytest\n@pytest.mark.parametrize("n", range(40))\ndef test_n(n): assert n >= 0\n' >test_n.py; python -m pytest -q -n 4 test_n.py >/dev/null`},
	{name: "uv", template: python, pip: "uv", did: "made an environment",
		line: `rm -rf venv; uv venv -q venv; venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'`},
	{name: "py-spy", template: python, pip: "py-spy", did: "dumped the stack of a process that ran",
		line: `python -c 'import time; time.sleep(100)' & P=$!; for i in $(seq 50); do py-spy dump --pid $P 2>/dev/null | grep -q module && break; sleep 0.2; done; py-spy dump --pid $P | grep -q module; kill $P`},
	{name: "Pillow", template: python, pip: "pillow", did: "saved a picture in three formats",
		line: `python -c 'from PIL import Image; i = Image.new("RGB", (8, 8), "red"); [i.save("i." + f) for f in ("png", "jpg", "webp")]; assert Image.open("i.webp").size == (8, 8)'`},

	{name: "TypeScript", template: node, npm: "typescript", did: "checked and compiled a program",
		line: `cd /workspace; echo 'const n: number = 42; console.log(n)' >t.ts; npx tsc --skipLibCheck --types '' t.ts; test "$(node t.js)" = 42`},
	{name: "Vite", template: node, npm: "vite", did: "built a page, and served it while developing",
		line: `cd /workspace; echo '<script type="module" src="/m.js"></script>' >index.html; echo 'document.title = "x"' >m.js; npx vite build --logLevel error; test -s dist/index.html; npx vite --port 8096 --logLevel error & P=$!; for i in $(seq 200); do curl -sf localhost:8096/ >page && break; sleep 0.1; done; grep -q vite page; kill $P`},
	{name: "webpack", template: node, npm: "webpack webpack-cli", did: "bundled two modules",
		line: `cd /workspace; mkdir -p src; echo 'export default 42' >src/a.js; echo 'import a from "./a"; console.log(a)' >src/index.js; npx webpack --mode production -o wp >/dev/null; test "$(node wp/main.js)" = 42`},
	{name: "Express", template: node, npm: "express", did: "served a request",
		line: `cd /workspace; echo 'const s = require("express")().get("/", (q, r) => r.send("hi")).listen(0, async () => { const t = await (await fetch("http://localhost:" + s.address().port)).text(); process.exit(t === "hi" ? 0 : 1) })' >e.cjs; node e.cjs`},
	{name: "Vitest", template: node, npm: "vitest", did: "ran a test",
		line: `cd /workspace; mkdir -p v; echo 'import { expect, test } from "vitest"; test("x", () => expect(6 * 7).toBe(42))' >v/a.test.js; npx vitest run --dir v >/dev/null`},
	{name: "sharp", template: node, npm: "sharp", did: "made a picture smaller",
		line: `cd /workspace; node -e 'require("sharp")({ create: { width: 64, height: 64, channels: 3, background: "red" } }).resize(32).png().toBuffer({ resolveWithObject: true }).then(({ info }) => process.exit(info.width === 32 ? 0 : 1))'`},
	{name: "Bun", template: node, npm: "bun", did: "ran TypeScript and a server",
		line: `cd /workspace; echo 'const s = Bun.serve({ port: 0, fetch: () => new Response("hi") }); const t: string = await (await fetch(s.url)).text(); process.exit(t === "hi" ? 0 : 1)' >b.ts; npx bun b.ts`},
	{name: "Deno", template: node, npm: "deno", did: "ran TypeScript without permissions, which refused it a file",
		line: `cd /workspace; echo 'const n: number = 42; try { Deno.readTextFileSync("/etc/passwd"); Deno.exit(1) } catch { Deno.exit(n === 42 ? 0 : 1) }' >d.ts; npx deno run --no-prompt d.ts`},
}
