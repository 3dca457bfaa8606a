import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { get } from "node:http";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createCompute } from "@computesdk/provider";
import { Bothy } from "bothy";
import { bothy } from "bothy-computesdk";

const own = new Bothy();
const provider = bothy({ links: { kind: "webhook" } });
const compute = createCompute({ defaultProvider: provider });

let sandbox;
before(async () => {
  sandbox = await compute.sandbox.create({ templateId: "python-3.12", timeout: 300_000, envs: { GREETING: "grüß dich" }, metadata: { of: "a test", n: 1 }, name: "computed" });
});
after(() => sandbox?.destroy());

test("what was asked for is what there is", async () => {
  const { info } = await own.sandboxes.get(sandbox.sandboxId);
  assert.deepEqual([info.template, info.name, info.timeoutSeconds, info.metadata], ["python-3.12", "computed", 300, { of: "a test", n: "1" }]);
  const seen = await sandbox.getInfo();
  assert.deepEqual([seen.id, seen.provider, seen.status, seen.timeout, seen.metadata.of], [sandbox.sandboxId, "bothy", "running", 300_000, "a test"]);
});

test("sizes are understood by the names that other providers have for them", async () => {
  for (const options of [{ cpu: 0.5, memoryMiB: 256, diskMiB: 1024 }, { vcpus: 0.5, memory: 256, diskMiB: 1024 }]) {
    const made = await compute.sandbox.create(options);
    const { info } = await own.sandboxes.get(made.sandboxId);
    await made.destroy();
    assert.deepEqual([info.cpu, info.memoryMb, info.diskMb], [0.5, 256, 1024]);
  }
});

test("sandboxes are found, listed and ended", async () => {
  const other = await compute.sandbox.create({ runtime: "python" });
  assert.equal((await compute.sandbox.getById(other.sandboxId)).sandboxId, other.sandboxId);
  assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === other.sandboxId));
  await other.destroy();
  assert.equal(await compute.sandbox.getById(other.sandboxId), null);
  assert.ok(!(await compute.sandbox.list()).some((s) => s.sandboxId === other.sandboxId));
  await compute.sandbox.destroy(other.sandboxId);
  assert.equal(await compute.sandbox.getById("sbxnothing"), null);
});

test("commands", async () => {
  const done = await sandbox.runCommand("echo $GREETING $A $PWD; echo bad >&2; exit 3", { cwd: "/tmp", env: { A: "b" } });
  assert.deepEqual([done.exitCode, done.stdout, done.stderr], [3, "grüß dich b /tmp\n", "bad\n"]);
  const said = [];
  await sandbox.runCommand("for i in 1 2 3; do echo $i; done; echo e >&2", { onStdout: (text) => said.push(text), onStderr: (text) => said.push(text) });
  assert.deepEqual(said.join("").split("\n").sort(), ["", "1", "2", "3", "e"]);
});

test("a sandbox is ready for its first command, and nobody's earlier one", async () => {
  // What ComputeSDK's public benchmark does with each sandbox.
  const look = "for d in /tmp /var/tmp; do test -e $d/mark && echo marked; echo mark >$d/mark; done; cat /proc/sys/kernel/random/boot_id";
  const seen = new Set();
  for (let n = 0; n < 2; n++) {
    const made = await compute.sandbox.create({ templateId: "node-22" });
    const { exitCode, stdout } = await made.runCommand(look);
    assert.equal(exitCode, 0);
    assert.match(stdout, /^[0-9a-f-]{36}\n$/);
    seen.add(stdout);
    assert.match((await made.runCommand("node -v")).stdout, /^v22/);
    await made.destroy();
  }
  assert.equal(seen.size, 2);
});

test("output that is too large is cut, and says so", async () => {
  const done = await sandbox.runCommand("head -c 40000000 /dev/zero | tr '\\0' x");
  assert.equal(done.exitCode, 0);
  assert.ok(done.stdout.length < 40_000_000);
  assert.match(done.stderr, /output was dropped/);
  assert.equal((await sandbox.runCommand("echo short")).stderr, "");
});

test("a command that takes too long ends with all that it started", async () => {
  const done = await sandbox.runCommand("echo begun; sh -c 'exec sleep 4321' & wait", { timeout: 300 });
  assert.deepEqual([done.exitCode, done.stdout], [124, "begun\n"]);
  assert.doesNotMatch((await sandbox.runCommand("ps ax -o args")).stdout, /sleep 4321/);
});

/** Gets a page of a host whose name leads to this one. */
async function page({ hostname, port, pathname }) {
  const res = await new Promise((done, failed) => get({ host: "127.0.0.1", port, path: pathname, headers: { Host: `${hostname}:${port}` } }, done).on("error", failed));
  let body = "";
  for await (const part of res) body += part;
  return { status: res.statusCode, body };
}

test("a server in the background answers by its address", async () => {
  await sandbox.filesystem.writeFile("/tmp/site/index.html", "page");
  const started = await sandbox.runCommand("python3 -m http.server 8000 --directory /tmp/site", { background: true });
  assert.equal(started.exitCode, 0);
  const url = new URL(await sandbox.getUrl({ port: 8000 }));
  let got;
  do got = await page(url);
  while (got.status === 409); // it does not listen yet
  assert.deepEqual(got, { status: 200, body: "page" });
  assert.match(await sandbox.getUrl({ port: 8000, protocol: "ws" }), /^ws/);
});

test("files", async () => {
  const { filesystem: fs } = sandbox;
  await fs.mkdir("/tmp/a folder/b");
  await fs.writeFile("/tmp/a folder/größe.txt", "42 µ\n");
  assert.equal(await fs.readFile("/tmp/a folder/größe.txt"), "42 µ\n");
  const entries = await fs.readdir("/tmp/a folder");
  assert.deepEqual(entries.map((e) => [e.name, e.type]).sort(), [["b", "directory"], ["größe.txt", "file"]]);
  assert.ok(entries.find((e) => e.type === "file").size === 6);
  assert.deepEqual([await fs.exists("/tmp/a folder/b"), await fs.exists("/tmp/nowhere")], [true, false]);
  await fs.remove("/tmp/a folder");
  assert.equal(await fs.exists("/tmp/a folder"), false);
  await assert.rejects(fs.readFile("/tmp/nowhere"), /nowhere/);
  await sandbox.runCommand("head -c 64 /dev/urandom >/tmp/bin; printf '\\377\\376' >>/tmp/bin");
  await assert.rejects(fs.readFile("/tmp/bin"), /binary/);
  assert.equal((await sandbox.getInstance().files.readBytes("/tmp/bin")).length, 66);
});

test("snapshots, and a sandbox from one", async () => {
  await sandbox.runCommand("echo kept >/tmp/kept");
  const snapshot = await provider.snapshot.create(sandbox.sandboxId, { name: "of a test" });
  assert.ok((await provider.snapshot.list({ sandboxId: sandbox.sandboxId })).some((s) => s.id === snapshot.id));
  assert.deepEqual(await provider.snapshot.list({ limit: 0 }), []);
  const copy = await bothy({ defaults: { template: "node-22", timeoutSeconds: 60 } }).sandbox.create({ snapshotId: snapshot.id });
  try {
    assert.equal((await copy.runCommand("cat /tmp/kept")).stdout, "kept\n");
    assert.equal((await own.sandboxes.get(copy.sandboxId)).info.timeoutSeconds, 60);
  } finally {
    await copy.destroy();
  }
  await provider.snapshot.delete(snapshot.id);
  assert.ok(!(await provider.snapshot.list()).some((s) => s.id === snapshot.id));
});

test("templates", async () => {
  const name = `of-a-test/${process.pid}`;
  const made = await provider.template.create({ name, sandboxId: sandbox.sandboxId, description: "of a test" });
  try {
    assert.equal(made.name, name);
    assert.ok((await provider.template.list()).some((t) => t.name === name));
    assert.equal((await provider.template.list({ limit: 1 })).length, 1);
  } finally {
    await provider.template.delete(name);
  }
  assert.ok(!(await provider.template.list()).some((t) => t.name === name));
});

test("what there is no counterpart of is refused, and says what to do", async () => {
  for (const [options, says] of [
    [{ image: "python:3" }, /template\.create/],
    [{ directory: "/x" }, /cwd/],
    [{ runtime: "deno" }, /templateId/],
    [{ templateId: "no-such-template" }, /no-such-template/],
    [{ cpu: 640 }, /cpu/i],
    [{ size: "no-size" }, /size/],
  ]) {
    await assert.rejects(async () => {
      const made = await compute.sandbox.create(options);
      await made.destroy();
    }, says, JSON.stringify(options));
  }
});

test("another version of the framework is told of once", () => {
  const code = `
    const { checkVersion } = await import("./dist/tested.js");
    checkVersion("2.1.5");
    checkVersion("3.0.0");
    checkVersion("3.0.1");`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const { stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", code], { cwd, encoding: "utf8" });
  assert.equal(stderr.match(/was tested with/g)?.length, 1, stderr);
  assert.match(stderr, /2\.1\.5, not with 3\.0\.0/);
});

test("the example", () => {
  const path = fileURLToPath(new URL("../examples/compute.js", import.meta.url));
  assert.equal(execFileSync(process.execPath, [path], { encoding: "utf8" }), "285\n");
});
