// Every call of E2B's SDKs for JavaScript, against a server of this tree.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";
import * as e2b from "e2b";
import { rest } from "./rest.mjs";
import { result, watchObjects } from "./surface.mjs";

const live = [];
async function create(...options) {
  const sandbox = await Sandbox.create(...options);
  live.push(sandbox);
  return sandbox;
}
after(() => Promise.all(live.map((s) => s.kill())));

let sandbox;
before(async () => {
  sandbox = await create({ timeoutMs: 300_000, metadata: { of: "sdk" }, envs: { COLOUR: "green" } });
  const { files, commands, pty, git } = sandbox;
  watchObjects({ files, commands, pty, git, pages: Sandbox.list(), snapshots: sandbox.listSnapshots(), secrets: e2b.Secret.list() });
});

async function until(done) {
  for (let i = 0; i < 200; i++) {
    const found = await done();
    if (found) return found;
    await new Promise((r) => setTimeout(r, 100));
  }
  assert.fail("it did not happen");
}

test("a command", async () => {
  const result = await sandbox.commands.run('echo out; echo err >&2; echo "$COLOUR $(whoami) $PWD"');
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["out\ngreen user /home/user\n", "err\n", 0]);
  await assert.rejects(sandbox.commands.run("exit 3"), (e) => e instanceof e2b.CommandExitError && e.exitCode === 3);
  const other = await sandbox.commands.run("id -un; pwd; echo $A", { user: "root", cwd: "/tmp", envs: { A: "b" } });
  assert.equal(other.stdout, "root\n/tmp\nb\n");
});

test("a command in the background", async () => {
  let seen = "";
  const handle = await sandbox.commands.run("cat; echo done", { background: true, stdin: true, onStdout: (s) => (seen += s) });
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === handle.pid));
  await sandbox.commands.sendStdin(handle.pid, "said\n");
  await sandbox.commands.closeStdin(handle.pid);
  await handle.wait();
  assert.equal(seen, "said\ndone\n");
  const sleeper = await sandbox.commands.run("sleep 300", { background: true });
  const again = await sandbox.commands.connect(sleeper.pid);
  assert.equal(await sandbox.commands.kill(sleeper.pid), true);
  await assert.rejects(again.wait());
  await assert.rejects(sandbox.commands.run("sleep 60", { timeoutMs: 1000 }), e2b.TimeoutError);
});

test("a terminal", async () => {
  let text = "";
  const decoder = new TextDecoder();
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, cwd: "/tmp", onData: (d) => (text += decoder.decode(d)) });
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; exit\n"));
  await terminal.wait();
  assert.match(text, /30 100/);
});

test("files", async () => {
  const { files } = sandbox;
  assert.equal((await files.write("notes/a.txt", "héllo")).path, "/home/user/notes/a.txt");
  assert.equal(await files.read("notes/a.txt"), "héllo");
  assert.equal(Buffer.from(await files.read("notes/a.txt", { format: "bytes" })).toString(), "héllo");
  assert.equal(await (await files.read("notes/a.txt", { format: "blob" })).text(), "héllo");
  assert.equal(await new Response(await files.read("notes/a.txt", { format: "stream" })).text(), "héllo");
  const data = Buffer.alloc(4 << 20, 7);
  await files.write([{ path: "m/1", data: "one" }, { path: "/tmp/m2", data: new Blob([data]) }]);
  assert.deepEqual(Buffer.from(await files.read("/tmp/m2", { format: "bytes" })), data);
  assert.equal(await files.makeDir("m/d"), true);
  assert.equal(await files.makeDir("m/d"), false);
  assert.deepEqual((await files.list("m")).map((e) => e.name), ["1", "d"]);
  assert.equal((await files.getInfo("m/1")).size, 3);
  assert.equal((await files.rename("m/1", "m/2")).path, "/home/user/m/2");
  assert.equal(await files.exists("m/1"), false);
  await files.remove("m");
  await assert.rejects(files.read("m/2"), e2b.NotFoundError);
});

test("a watch", async () => {
  await sandbox.files.makeDir("watched");
  const seen = [];
  const handle = await sandbox.files.watchDir("watched", (e) => seen.push(e.name), { recursive: true });
  await sandbox.files.write("watched/new", "x");
  await until(() => seen.includes("new"));
  await handle.stop();
});

test("signed addresses", async () => {
  await sandbox.files.write("signed", "content");
  assert.equal(await (await fetch(await sandbox.downloadUrl("signed", { useSignatureExpiration: 60_000 }))).text(), "content");
  const form = new FormData();
  form.append("file", new Blob(["up"]), "u");
  const res = await fetch(await sandbox.uploadUrl("uploaded"), { method: "POST", body: form });
  assert.equal(res.status, 200);
  assert.equal(await sandbox.files.read("uploaded"), "up");
});

test("code", async () => {
  const out = [];
  const execution = await sandbox.runCode("print('hi')\nx = 1\nx + 1", { onStdout: (m) => out.push(m.line) });
  assert.deepEqual([execution.text, execution.error, out], ["2", undefined, ["hi\n"]]);
  assert.equal((await sandbox.runCode("1/0")).error.name, "ZeroDivisionError");
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.equal((await sandbox.runCode("import os; os.getcwd()", { context })).text, "/tmp");
  assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id));
  await sandbox.restartCodeContext(context);
  await sandbox.removeCodeContext(context);
  const chart = (await sandbox.runCode("import matplotlib.pyplot as plt\nplt.bar(['a'], [3])\nplt.show()")).results[0].chart;
  assert.deepEqual([chart.type, chart.elements[0].value], ["bar", 3]);
});

test("life", async () => {
  const s = await create({ timeoutMs: 120_000, metadata: { life: "js" } });
  await s.setTimeout(300_000);
  const info = await s.getInfo();
  assert.deepEqual([info.state, info.metadata], ["running", { life: "js" }]);
  assert.equal(await s.isRunning(), true);
  const pages = Sandbox.list({ query: { metadata: { life: "js" }, state: ["running"] } });
  assert.deepEqual((await pages.nextItems()).map((x) => x.sandboxId), [s.sandboxId]);
  assert.equal(pages.hasNext, false);
  assert.ok((await s.getMetrics()).length > 0);
  await s.files.write("kept", "yes");
  assert.equal(await s.pause(), true);
  assert.equal(await s.isRunning(), false);
  const again = await Sandbox.connect(s.sandboxId);
  assert.equal(await again.files.read("kept"), "yes");
  const snapshot = await again.createSnapshot();
  const copy = await create(snapshot.snapshotId, { timeoutMs: 60_000 });
  assert.equal(await copy.files.read("kept"), "yes");
  await copy.kill();
  const forks = await again.fork({ count: 1 });
  live.push(...forks);
  assert.equal(await forks[0].files.read("kept"), "yes");
  await again.updateNetwork({ allowOut: ["example.org"], denyOut: ["0.0.0.0/0"] });
  assert.deepEqual((await again.getInfo()).network.allowOut, ["example.org"]);
  assert.equal(await again.kill(), true);
  assert.equal(await again.kill(), false);
  await assert.rejects(again.commands.run("true"), /not running/);
  await assert.rejects(again.getInfo(), e2b.NotFoundError);
});

test("a port", async () => {
  await sandbox.commands.run("cd $(mktemp -d) && echo page >index.html && python3 -m http.server 8000", { background: true });
  const host = sandbox.getHost(8000);
  assert.match(host, new RegExp(`^8000-${sandbox.sandboxId}\\.`));
  // *.localhost leads here by itself only in browsers.
  const page = await until(async () => {
    const { request } = await import("node:http");
    const at = new URL(process.env.E2B_API_URL);
    return new Promise((resolve) => {
      request({ host: at.hostname, port: at.port, path: "/index.html", headers: { host } }, (res) => {
        let body = "";
        res.on("data", (d) => (body += d)).on("end", () => resolve(res.statusCode === 200 && body));
      }).end();
    });
  });
  assert.equal(page, "page\n");
});

test("refusals", async () => {
  await assert.rejects(Sandbox.create({ apiKey: "e2b_" + "0".repeat(40) }), e2b.AuthenticationError);
  await assert.rejects(Sandbox.create("no-such-template"), /404/);
});

rest(() => sandbox, create);

// The last: all that comes before has been called by now.
test("every public function has been called, or is known not to be", () => {
  assert.deepEqual(result(), { missing: [], useless: [] });
});
