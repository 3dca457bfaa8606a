"""What the rows work_* have a sandbox, a container or the host do.

    work.py NAME COUNT

Each work is a generator. What it does until its first yield is made ready
beforehand, what it does until its second is timed, and after that it returns how
much was really done, and how much should have been. The result is one line of JSON.
"""

import glob
import json
import os
import queue
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def path(*names):
    return os.path.join(HERE, *names)


def fresh(name):
    """An empty folder."""
    shutil.rmtree(path(name), ignore_errors=True)
    os.makedirs(path(name))
    return path(name)


def shell(script, *args, **more):
    """What a script prints. Its arguments are $1 and so on."""
    ended = subprocess.run(["sh", "-euc", script, "sh", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if ended.returncode != 0:
        raise SystemExit(f"{script!r} ended with {ended.returncode}: {ended.stderr[-2000:]}{ended.stdout[-2000:]}")
    return ended.stdout


def write(name, text):
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "w") as f:
        f.write(text)


def getppid(count):
    call, parent, right = os.getppid, os.getppid(), 0
    yield
    for _ in range(count):
        last = call()
    yield
    return (count if last == parent else 0), count


def threads(count):
    todo, done = queue.Queue(), queue.Queue()

    def work():
        while (item := todo.get()) is not None:
            done.put(item)

    workers = [threading.Thread(target=work) for _ in range(8)]
    yield
    for w in workers:
        w.start()
    for i in range(count):
        todo.put(i)
    for _ in workers:
        todo.put(None)
    for w in workers:
        w.join()
    yield
    return len({done.get() for _ in range(done.qsize())}), count


SMALL = os.urandom(4096)


def read(count):
    files = [path("read", str(i)) for i in range(count)]
    if not os.path.exists(path("read")):
        os.makedirs(path("read"))
        for name in files:
            with open(name, "wb") as f:
                f.write(SMALL)
    total = 0
    yield
    for name in files:
        with open(name, "rb") as f:
            total += len(f.read())
    yield
    return total // len(SMALL), count


def write_files(count):
    files = [os.path.join(fresh("written"), str(i)) for i in range(count)]
    yield
    for name in files:
        with open(name, "wb") as f:
            f.write(SMALL)
    yield
    return sum(e.stat().st_size == len(SMALL) for e in os.scandir(path("written"))), count


def sqlite(count):
    db = sqlite3.connect(os.path.join(fresh("sqlite"), "db"))
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    yield
    for i in range(count):
        with db:
            db.execute("INSERT INTO t VALUES (?, ?)", (i, "a line of text"))
    yield
    return db.execute("SELECT count(*) FROM t").fetchone()[0], count


def site_packages():
    return sysconfig.get_paths()["purelib"]


def stat(_):
    folder = site_packages()
    yield
    out = shell('find "$1" -print0 | xargs -0 stat -c %s', folder)
    yield
    return out.count("\n"), 1 + sum(len(dirs) + len(files) for _, dirs, files in os.walk(folder))


def tar(count):
    names = [n for n in ("numpy", "pandas", "scipy", "pip") if os.path.isdir(os.path.join(site_packages(), n))][:count]
    folder = fresh("tar")
    yield
    shell('from=$1; cd "$2"; shift 2; tar -C "$from" -cf out.tar "$@"; tar -xf out.tar', site_packages(), folder, *names)
    yield

    def size(root):
        return sum(os.lstat(os.path.join(at, f)).st_size for n in names for at, _, files in os.walk(os.path.join(root, n)) for f in files)

    return size(folder), size(site_packages())


def pipe(count):
    yield
    out = shell('head -c "$1" /dev/zero | cat | wc -c', count)
    yield
    return int(out), count


def spawn(count):
    yield
    out = shell('i=0; while [ $i -lt "$1" ]; do /bin/echo started; i=$((i+1)); done', count)
    yield
    return out.count("started\n"), count


PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-cache-dir", "--disable-pip-version-check",
       "--root-user-action=ignore", "--find-links", path("wheels")]


def install(names, into):
    ended = subprocess.run([*PIP, "--target", into, *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"pip ended with {ended.returncode}: {ended.stdout[-2000:]}")


def pip(count):
    with open(path("wheels", "pins")) as f:
        names = f.read().split()
    # With fewer than all, what they need is left out.
    some, more = names[:count], ["--no-deps"] if count < len(names) else []
    into = fresh("pip")
    yield
    install(more + some, into)
    yield
    return len(glob.glob(os.path.join(into, "*.dist-info"))), len(some)


def npm(_):
    folder = fresh("project")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(path("npm", name), folder)
    with open(os.path.join(folder, "package-lock.json")) as f:
        wanted = [p for p in json.load(f)["packages"] if p]
    yield
    shell('npm ci --offline --cache "$1" --registry "$2" --ignore-scripts --no-audit --no-fund --loglevel error',
          path("npm", "cache"), open(path("npm", "registry")).read().strip(), cwd=folder)
    yield
    return sum(os.path.exists(os.path.join(folder, p, "package.json")) for p in wanted), len(wanted)


GO_PACKAGE = """package p{0}

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
)

type Item{0} struct {{
	Name  string            `json:"name"`
	Tags  []string          `json:"tags"`
	Extra map[string]string `json:"extra"`
}}

func One(w io.Writer) int {{
	items := map[string]Item{0}{{"a": {{Name: "a", Tags: strings.Split("x,y,z", ",")}}}}
	var names []string
	for name, item := range items {{
		sort.Strings(item.Tags)
		names = append(names, fmt.Sprintf("%s-%d", name, len(item.Tags)))
	}}
	if w != nil {{
		_ = json.NewEncoder(w).Encode(names)
	}}
	return len(names)
}}
"""


def go(count):
    tools = path("toolchain")
    if not os.path.exists(tools):
        os.makedirs(tools)
        shell('for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2"; done', path("go"), tools)
        for link in glob.glob(path("toolchain/usr/lib/go-*/*")):
            if os.path.islink(link):  # to where Debian would have put it
                to = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
                os.unlink(link)
                os.symlink(to if to.startswith(tools) else tools + os.path.realpath(to), link)
    folder, cache = fresh("module"), fresh("gocache")
    for i in range(count):
        write(f"module/p{i}/p.go", GO_PACKAGE.format(i))
    imports = "".join(f'\t"bench/p{i}"\n' for i in range(count))
    sums = "".join(f"\tsum += p{i}.One(nil)\n" for i in range(count))
    write("module/go.mod", "module bench\n\ngo 1.19\n")
    write("module/main.go", f"package main\n\nimport (\n{imports})\n\nfunc main() {{\n\tsum := 0\n{sums}\tprintln(sum)\n}}\n")
    env = {**os.environ, "GOCACHE": cache, "GOPATH": path("gopath"), "GOFLAGS": "-mod=mod", "GOPROXY": "off", "CGO_ENABLED": "0",
           "GOROOT": glob.glob(path("toolchain/usr/lib/go-*"))[0]}
    yield
    shell('"$GOROOT/bin/go" build -o app .', cwd=folder, env=env)
    yield
    return int(shell("./app 2>&1", cwd=folder)), count


C_FILE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "all.h"

struct item{0} {{ char name[64]; struct item{0} *next; }};

static struct item{0} *add{0}(struct item{0} *to, const char *name) {{
	struct item{0} *one = calloc(1, sizeof *one);
	strncpy(one->name, name, sizeof one->name - 1);
	one->next = to;
	return one;
}}

int f{0}(void) {{
	struct item{0} *all = 0;
	char text[32];
	int n = 0;
	for (int i = 0; i < 100; i++) {{
		snprintf(text, sizeof text, "item %d of %d", i, {0});
		all = add{0}(all, text);
	}}
	while (all) {{
		struct item{0} *next = all->next;
		n += strstr(all->name, "item 7 ") != 0;
		free(all);
		all = next;
	}}
	return n;
}}
"""


def make(count):
    folder = fresh("c")
    for i in range(count):
        write(f"c/f{i}.c", C_FILE.format(i))
    write("c/all.h", "".join(f"int f{i}(void);\n" for i in range(count)))
    sums = "".join(f"\tsum += f{i}();\n" for i in range(count))
    write("c/main.c", f'#include <stdio.h>\n#include "all.h"\n\nint main(void) {{\n\tint sum = 0;\n{sums}\tprintf("%d\\n", sum);\n\treturn 0;\n}}\n')
    objects = "main.o " + " ".join(f"f{i}.o" for i in range(count))
    write("c/Makefile", f"CFLAGS = -O2 -Wall\napp: {objects}\n\t$(CC) -o $@ $^\n%.o: %.c all.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n")
    yield
    shell("make -j2", cwd=folder)
    yield
    return int(shell("./app", cwd=folder)), count


def pytest(count):
    suite = path("suite")
    if not os.path.exists(suite):
        install(["pytest", "networkx"], suite)
    tests = sorted(glob.glob(os.path.join(suite, "networkx/algorithms/tests/test_*.py")))[:count]
    env = {**os.environ, "PYTHONPATH": suite, "PYTHONDONTWRITEBYTECODE": "1"}
    yield
    out = shell('python3 -m pytest -q -p no:cacheprovider "$@" 2>&1', *tests, cwd=suite, env=env)
    yield
    words = out.strip().splitlines()[-1].replace(",", "").split()
    passed = int(words[words.index("passed") - 1])
    return (passed if passed >= len(tests) else 0), passed


# How many files of a folder there are in the tree, and how many have been changed.
PER_FOLDER, CHANGED = 20, 10


def git(count):
    tree = path("tree")
    if not os.path.exists(tree):
        lines = ["commit refs/heads/main\ncommitter bench <bench@localhost> 1700000000 +0000\ndata 4\ntree\n"]
        for i in range(count):
            text = f"this is file {i}\n" * 20
            lines.append(f"M 644 inline d{i // PER_FOLDER}/f{i}\ndata {len(text)}\n{text}\n")
        os.makedirs(tree)
        shell("git init -q -b main; git fast-import --quiet; git checkout -q -f main", cwd=tree, input="".join(lines))
        for i in range(0, CHANGED):
            with open(os.path.join(tree, f"d{i // PER_FOLDER}/f{i}"), "a") as f:
                f.write("changed\n")
        shell("git status", cwd=tree)
    yield
    out = shell("for i in 1 2 3 4 5; do git status --porcelain; done", cwd=tree)
    yield
    return out.count(" M d"), 5 * min(CHANGED, count)


def apt(_):
    names = [os.path.basename(f).partition("_")[0] for f in glob.glob(path("debs", "*.deb"))]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    there = 'dpkg-query -W -f \'${Status}\\n\' "$@" 2>/dev/null | grep -c "install ok installed" || true'
    if int(shell(there, *names)) > 0:
        shell('dpkg --purge --force-all "$@"', *names, env=env)
    yield
    shell('apt-get install -y --no-install-recommends "$1"/*.deb', path("debs"), env=env)
    yield
    return int(shell(there, *names)), len(names)


WORKS = {
    "getppid": getppid, "threads": threads, "read": read, "write": write_files, "sqlite": sqlite, "stat": stat, "tar": tar,
    "pipe": pipe, "spawn": spawn, "pip": pip, "npm": npm, "go": go, "make": make, "pytest": pytest, "git": git, "apt": apt,
}


def main(name, count):
    work = WORKS[name](int(count))
    next(work)
    begun = time.perf_counter()
    next(work)
    seconds = time.perf_counter() - begun
    try:
        next(work)
    except StopIteration as end:
        did, wanted = end.value
    print(json.dumps({"seconds": seconds, "did": did, "wanted": wanted}))


main(*sys.argv[1:])
