import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { FileNotFoundInSandboxError, IsADirectoryInSandboxError, NotADirectoryInSandboxError, PermissionDeniedError, Sandbox } from "bothy";
import { template } from "./setup.js";

const time = new Date("2024-05-06T07:08:09.500Z");

async function folder(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "bothy-e2e-"));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

test("files are written, read, described, moved and removed", async () => {
  await using sbx = await Sandbox.create({ template });
  const { files } = sbx;
  const written = await files.write("deep/er/grün €.txt", "hällo\n", { mode: 0o640, modifiedAt: time });
  assert.deepEqual([written.path, written.size, written.type], ["/workspace/deep/er/grün €.txt", 7, "file"]);
  assert.equal(await files.read("/workspace/deep/er/grün €.txt"), "hällo\n");
  const described = await files.stat("deep/er/grün €.txt");
  assert.deepEqual([described.mode, described.owner, described.modifiedAt], ["0640", "user", time]);
  const bytes = crypto.getRandomValues(new Uint8Array(60_000));
  await files.write("random", bytes);
  assert.deepEqual(await files.readBytes("random"), bytes);
  assert.equal((await files.mkdir("/workspace/deep/empty")).type, "directory");
  assert.deepEqual((await files.list("deep")).map((entry) => entry.name).sort(), ["empty", "er"]);
  assert.ok((await files.list("deep", { depth: 2 })).some((entry) => entry.name === "grün €.txt"));
  assert.equal((await files.move("random", "moved")).path, "/workspace/moved");
  assert.deepEqual([await files.exists("random"), await files.exists("moved")], [false, true]);
  await files.remove("deep");
  assert.equal(await files.exists("deep"), false);
});

test("parts of files are read, and archives go out and in", async () => {
  await using sbx = await Sandbox.create({ template });
  const { files } = sbx;
  const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
  await files.write("t/a", "0123456789");
  for (const [options, want] of [[{ offset: 3 }, "3456789"], [{ offset: 3, length: 4 }, "3456"], [{ length: 2 }, "01"], [{ offset: 8, length: 9 }, "89"],
    [{ offset: 10 }, ""], [{ offset: 99, length: 1 }, ""], [{ offset: 2, length: 0 }, ""]] as const) {
    assert.equal(text(await files.readBytes("t/a", options)), want, JSON.stringify(options));
  }
  assert.equal(text(await files.readBytes("/proc/version", { offset: 1, length: 4 })), "inux");
  await assert.rejects(files.readBytes("t/a", { offset: -1 }), RangeError);
  await sbx.exec("cd t && ln a b && mkdir node_modules && touch node_modules/x y.log");
  for (const gzip of [false, true]) {
    const archive = new Uint8Array(await new Response(await files.readArchive("t", { gzip, exclude: ["node_modules", "*.log"] })).arrayBuffer());
    assert.equal(archive[0] === 0x1f, gzip);
    await files.writeArchive(`copy-${gzip}`, gzip ? new Response(archive).body! : archive);
    assert.equal((await sbx.exec(`cd copy-${gzip} && ls && cat b && [ a -ef b ] && echo " same"`)).stdout, "a\nb\n0123456789 same\n");
  }
});

test("mistakes with files are errors of their own kind", async () => {
  await using sbx = await Sandbox.create({ template });
  const { files } = sbx;
  await assert.rejects(files.read("nothing"), FileNotFoundInSandboxError);
  await assert.rejects(files.read("/workspace"), IsADirectoryInSandboxError);
  await assert.rejects(files.list("/etc/hostname"), NotADirectoryInSandboxError);
  await assert.rejects(files.write("/etc/hostname", "x"), PermissionDeniedError);
  await files.write("/etc/motd", "x", { user: "root" });
  assert.equal((await files.stat("/etc/motd")).owner, "root");
});

test("a hundred megabytes go in and out as streams", async () => {
  await using sbx = await Sandbox.create({ template });
  const chunk = crypto.getRandomValues(new Uint8Array(65536));
  async function* content(): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 1600; i++) yield chunk;
  }
  assert.equal((await sbx.files.write("big", content())).size, 1600 * chunk.length);
  let size = 0;
  for await (const piece of await sbx.files.readStream("big")) size += piece.length;
  assert.equal(size, 1600 * chunk.length);
});

test("changes are seen while they happen", async () => {
  await using sbx = await Sandbox.create({ template });
  await using changes = await sbx.files.watch("/workspace", { recursive: true, signal: AbortSignal.timeout(30_000) });
  // Again and again, because a busy sandbox may begin to watch a moment late.
  await sbx.spawn("while :; do mkdir sub; echo x > sub/a; rm sub/a; rmdir sub; sleep 0.1; done");
  const wanted = new Set(["create /workspace/sub", "create /workspace/sub/a", "remove /workspace/sub/a", "remove /workspace/sub"]);
  for await (const change of changes) {
    wanted.delete(`${change.type} ${change.path}`);
    if (wanted.size === 0) break;
  }
});

test("a file keeps its content, permissions and time on both ways", async (t) => {
  await using sbx = await Sandbox.create({ template });
  const at = await folder(t);
  const content = Buffer.alloc(3_000_000, "0123456789");
  await writeFile(join(at, "in"), content, { mode: 0o750 });
  await utimes(join(at, "in"), time, time);
  await sbx.files.upload(join(at, "in"), "data/in");
  assert.equal((await sbx.exec("stat -c '%a %Y' data/in")).stdout, `750 ${Math.floor(time.getTime() / 1000)}\n`);
  await sbx.files.download("data/in", join(at, "out"));
  assert.ok((await readFile(join(at, "out"))).equals(content));
  const { mode, mtimeMs } = await stat(join(at, "out"));
  assert.deepEqual([mode & 0o777, mtimeMs], [0o750, time.getTime()]);
});

test("a folder goes up and comes down the same", async (t) => {
  await using sbx = await Sandbox.create({ template });
  const at = await folder(t);
  const long = "n".repeat(120);
  await mkdir(join(at, "in", long), { recursive: true });
  await writeFile(join(at, "in", long, "zwölf"), "12");
  await writeFile(join(at, "in/run.sh"), "echo it runs", { mode: 0o755 });
  await symlink("run.sh", join(at, "in/link"));
  await utimes(join(at, "in/run.sh"), time, time);
  assert.deepEqual(await sbx.files.upload(join(at, "in"), "/workspace/project"), { files: 2, bytes: 14, skipped: [] });
  assert.equal((await sbx.exec("sh project/link")).check().stdout, "it runs\n");
  await sbx.exec("ln -s /etc/passwd project/out && mkfifo project/pipe").then((result) => result.check());
  const down = await sbx.files.download("/workspace/project", join(at, "out"));
  assert.deepEqual([down.files, down.skipped], [2, ["out"]]);
  assert.deepEqual((await readdir(join(at, "out"), { recursive: true })).sort(), (await readdir(join(at, "in"), { recursive: true })).sort());
  assert.equal(await readlink(join(at, "out/link")), "run.sh");
  assert.equal((await stat(join(at, "out/run.sh"))).mtimeMs, time.getTime());
  assert.equal((await stat(join(at, "out/run.sh"))).mode & 0o777, 0o755);
});
