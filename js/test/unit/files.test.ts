import assert from "node:assert/strict";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { pathToFileURL } from "node:url";
import { ConnectionError, Sandbox, type SandboxInfo, FileNotFoundInSandboxError, IsADirectoryInSandboxError, NotADirectoryInSandboxError } from "bothy";
import { readTar, tarEnd, tarHeader, type TarHead, tarPadding } from "#internal/tar.js";
import { Transport } from "#internal/transport.js";
import { bytes, FakeServer, json, noContent, problem, sendEvents } from "./fake.js";

const base = "/v1/sandboxes/sbx_1/files";
const time = new Date("2024-05-06T07:08:09.500Z");

function open(fake: FakeServer): Sandbox {
  const transport = new Transport({ url: fake.url, apiKey: "bothy_test" }, { sleep: async () => undefined });
  return new Sandbox(transport, { id: "sbx_1" } as SandboxInfo);
}

async function folder(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "bothy-files-"));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

const info = { name: "a", path: "/workspace/a", type: "file", size: 1, mode: "0644", uid: 1000, gid: 1000, modified_at: "2024-05-06T07:08:09.5Z" };

test("a file is written from text, bytes, blobs, streams and generators", async () => {
  await using fake = await FakeServer.start();
  fake.on(`PUT ${base}`, json(info));
  const { files } = open(fake);
  async function* pieces(): AsyncGenerator<Uint8Array> {
    yield Buffer.from("he");
    yield Buffer.from("llo");
  }
  for (const content of ["hello", Buffer.from("hello"), Uint8Array.from(Buffer.from("hello")).buffer, new Blob(["hello"]), new Blob(["hello"]).stream(), pieces()]) {
    assert.equal((await files.write("a", content)).type, "file");
  }
  assert.deepEqual(fake.seen.map((seen) => seen.body.toString()), Array(6).fill("hello"));
  assert.ok(fake.seen.every((seen) => seen.headers["content-type"] === "application/octet-stream"));
});

test("attributes go with a file", async () => {
  await using fake = await FakeServer.start();
  fake.on(`PUT ${base}`, json(info));
  await open(fake).files.write("bin/run me", "x", { mode: 0o755, user: "root", modifiedAt: time });
  await open(fake).files.write("secret", "x", { mode: 0o7 });
  assert.deepEqual(Object.fromEntries(fake.seen[0]?.query ?? []), { path: "bin/run me", user: "root", mode: "0755", modified_at: "2024-05-06T07:08:09.500Z" });
  assert.deepEqual(Object.fromEntries(fake.seen[1]?.query ?? []), { path: "secret", mode: "0007" });
});

test("a file is read as text, bytes and a stream", async () => {
  await using fake = await FakeServer.start();
  const content = Buffer.from("\ufeffgrün\n");
  fake.on(`GET ${base}`, bytes(content));
  const { files } = open(fake);
  assert.equal(await files.read("a"), "\ufeffgrün\n");
  assert.deepEqual(Buffer.from(await files.readBytes("a")), content);
  const chunks: Uint8Array[] = [];
  for await (const chunk of await files.readStream("a")) chunks.push(chunk);
  assert.deepEqual(Buffer.concat(chunks), content);
});

test("cancelling a stream that is read hangs up", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => {
    fake.on(`GET ${base}`, (seen, response) => {
      void seen.gone.then(resolve);
      response.write("endless");
    });
  });
  const stream = await open(fake).files.readStream("a");
  const reader = stream.getReader();
  assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "endless");
  await reader.cancel();
  await left;
});

test("half a file is never taken for a whole one", async () => {
  await using fake = await FakeServer.start();
  fake.on(`GET ${base}`, (_, response) => {
    response.writeHead(200, { "Content-Length": "10" });
    response.write("half").destroy();
  });
  await assert.rejects(open(fake).files.read("a"), ConnectionError);
  await assert.rejects(async () => {
    for await (const _ of await open(fake).files.readStream("a"));
  }, ConnectionError);
});

test("a folder is listed, and not read; a file is read, and not listed", async () => {
  await using fake = await FakeServer.start();
  fake.on(`GET ${base}`, json({ items: [info] }));
  const { files } = open(fake);
  const [entry] = await files.list("/workspace", { depth: 2 });
  assert.deepEqual(entry?.modifiedAt, time);
  assert.deepEqual(Object.fromEntries(fake.seen[0]?.query ?? []), { path: "/workspace", depth: "2" });
  await assert.rejects(files.read("/workspace"), IsADirectoryInSandboxError);
  await assert.rejects(files.readStream("/workspace"), IsADirectoryInSandboxError);
  fake.on(`GET ${base}`, bytes(Buffer.from('{"items":[]}')));
  await assert.rejects(files.list("a.json"), NotADirectoryInSandboxError);
  assert.equal(await files.read("a.json"), '{"items":[]}');
});

test("stat, exists, mkdir, move and remove", async () => {
  await using fake = await FakeServer.start();
  fake
    .on(`GET ${base}/stat`, json(info), json(info), problem(404, "file_not_found", "no such file"), problem(404, "sandbox_not_found", "no such sandbox"))
    .on(`POST ${base}/mkdir`, json({ ...info, type: "directory" }))
    .on(`POST ${base}/move`, json(info))
    .on(`DELETE ${base}`, noContent);
  const { files } = open(fake);
  assert.equal((await files.stat("a")).size, 1);
  assert.equal(await files.exists("a"), true);
  assert.equal(await files.exists("b"), false);
  await assert.rejects(files.exists("c"), { code: "sandbox_not_found" });
  assert.equal((await files.mkdir("d", { user: "root" })).type, "directory");
  await files.move("a", "b");
  await files.remove("b", { user: "root" });
  assert.deepEqual(fake.requests(`POST ${base}/mkdir`)[0]?.json, { path: "d", user: "root" });
  assert.deepEqual(fake.requests(`POST ${base}/move`)[0]?.json, { from: "a", to: "b" });
  assert.deepEqual(Object.fromEntries(fake.requests(`DELETE ${base}`)[0]?.query ?? []), { path: "b", user: "root" });
});

test("a file that is not there is an error of its own", async () => {
  await using fake = await FakeServer.start();
  fake.on(`GET ${base}`, problem(404, "file_not_found", "/workspace/x does not exist"));
  await assert.rejects(open(fake).files.read("x"), FileNotFoundInSandboxError);
});

test("a watch yields changes until it is closed", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => {
    fake.on(`GET ${base}/watch`, (seen, response) => {
      void seen.gone.then(resolve);
      sendEvents(response, { type: "create", path: "/workspace/a", name: "a" });
    });
  });
  const changes = await open(fake).files.watch("/workspace", { recursive: true });
  assert.equal(fake.seen[0]?.query.get("recursive"), "true");
  const seen: string[] = [];
  for await (const change of changes) {
    seen.push(`${change.type} ${change.path}`);
    changes.close(); // The loop is told to end while it waits.
  }
  assert.deepEqual(seen, ["create /workspace/a"]);
  await left;
});

test("a file is uploaded with its permissions and time, again from the start when the server was busy", async (t) => {
  await using fake = await FakeServer.start();
  fake.on(`PUT ${base}`, problem(503, "capacity", "busy"), json(info));
  const path = join(await folder(t), "data.bin");
  const content = Buffer.alloc(1_000_000, "0123456789");
  await writeFile(path, content);
  await chmod(path, 0o640);
  await utimes(path, time, time);
  assert.deepEqual(await open(fake).files.upload(pathToFileURL(path), "/data/in.bin"), { files: 1, bytes: content.length, skipped: [] });
  const [, second] = fake.seen;
  assert.ok(second?.body.equals(content));
  assert.deepEqual(Object.fromEntries(second?.query ?? []), { path: "/data/in.bin", mode: "0640", modified_at: "2024-05-06T07:08:09.500Z" });
});

test("a file is downloaded with its permissions and time", async (t) => {
  await using fake = await FakeServer.start();
  const content = Buffer.alloc(300_000, "abc");
  fake.on(`GET ${base}`, bytes(content, { "X-File-Info": JSON.stringify({ ...info, mode: "0750" }) }));
  const at = await folder(t);
  assert.deepEqual(await open(fake).files.download("/data/out.bin", join(at, "out.bin")), { files: 1, bytes: content.length, skipped: [] });
  assert.ok((await readFile(join(at, "out.bin"))).equals(content));
  const stats = await stat(join(at, "out.bin"));
  assert.equal(stats.mode & 0o777, 0o750);
  assert.equal(stats.mtimeMs, time.getTime());
});

test("a download that breaks off leaves nothing, and keeps what was there", async (t) => {
  await using fake = await FakeServer.start();
  fake.on(`GET ${base}`, (_, response) => {
    response.writeHead(200, { "Content-Type": "application/octet-stream", "Content-Length": "10" });
    response.write("half").destroy();
  });
  const at = await folder(t);
  await writeFile(join(at, "out"), "before");
  await assert.rejects(open(fake).files.download("x", join(at, "out")), ConnectionError);
  assert.deepEqual(await readdir(at), ["out"]);
  assert.equal(await readFile(join(at, "out"), "utf8"), "before");
});

test("a folder goes up and comes down the same: names, modes, times, links", async (t) => {
  await using fake = await FakeServer.start();
  fake.on(`PUT ${base}/archive`, noContent);
  const at = await folder(t);
  const long = "n".repeat(120);
  await mkdir(join(at, "in/deep", long), { recursive: true });
  await mkdir(join(at, "in/empty"));
  await writeFile(join(at, "in/deep", long, "grün €.txt"), "deep");
  await writeFile(join(at, "in/run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  await writeFile(join(at, "in/nothing"), "");
  await symlink("run.sh", join(at, "in/link"));
  await utimes(join(at, "in/run.sh"), time, time);
  await utimes(join(at, "in/empty"), time, time);
  const { files } = open(fake);
  assert.deepEqual(await files.upload(join(at, "in"), "/workspace/project"), { files: 3, bytes: 14, skipped: [] });
  const [put] = fake.requests(`PUT ${base}/archive`);
  assert.equal(put?.query.get("path"), "/workspace/project");

  fake.on(`GET ${base}`, json({ items: [] })).on(`GET ${base}/archive`, bytes(put?.body ?? Buffer.alloc(0), { "Content-Type": "application/x-tar" }));
  assert.deepEqual(await files.download("/workspace/project", join(at, "out")), { files: 3, bytes: 14, skipped: [] });
  assert.deepEqual((await readdir(join(at, "out"), { recursive: true })).sort(), (await readdir(join(at, "in"), { recursive: true })).sort());
  assert.equal(await readFile(join(at, "out/deep", long, "grün €.txt"), "utf8"), "deep");
  assert.equal(await readlink(join(at, "out/link")), "run.sh");
  assert.equal((await stat(join(at, "out/run.sh"))).mode & 0o777, 0o755);
  assert.equal((await stat(join(at, "out/run.sh"))).mtimeMs, time.getTime());
  assert.equal((await stat(join(at, "out/empty"))).mtimeMs, time.getTime());
});

type Entry = Partial<TarHead> & { name: string; content?: string; flag?: string };

function tar(...entries: Entry[]): Buffer {
  const blocks: Uint8Array[] = [];
  for (const { content = "", flag, ...head } of entries) {
    const body = Buffer.from(content);
    const header = tarHeader({ type: "file", mode: 0o644, mtime: 0, size: body.length, ...head });
    blocks.push(flag ? reflag(header, flag) : header, body, tarPadding(body.length));
  }
  return Buffer.concat([...blocks, tarEnd]);
}

/** Changes the type of an entry and mends the checksum. */
function reflag(header: Uint8Array, flag: string): Uint8Array {
  const out = Buffer.from(header);
  out.write(flag, 156);
  out.write(" ".repeat(8), 148);
  out.write(`${out.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `, 148);
  return out;
}

async function downloadTar(t: TestContext, archive: Uint8Array): Promise<{ at: string; download: () => Promise<unknown> }> {
  const fake = await FakeServer.start();
  t.after(() => fake[Symbol.asyncDispose]());
  fake.on(`GET ${base}`, json({ items: [] })).on(`GET ${base}/archive`, bytes(archive));
  const at = await folder(t);
  return { at, download: () => open(fake).files.download("/workspace", join(at, "out")) };
}

for (const name of ["../evil", "/etc/evil", "a/../../evil", ".."]) {
  test(`a hostile sandbox cannot write to ${name}`, async (t) => {
    const { at, download } = await downloadTar(t, tar({ name, content: "x" }));
    await assert.rejects(download(), /lies outside of the folder/);
    assert.deepEqual(await readdir(at), ["out"]);
  });
}

test("a hostile sandbox cannot write through a link of its own", async (t) => {
  const { at, download } = await downloadTar(t, tar({ name: "way", type: "symlink", linkTarget: ".." }, { name: "way/evil", content: "x" }));
  assert.deepEqual(await download(), { files: 1, bytes: 1, skipped: ["way"] });
  assert.deepEqual(await readdir(at, { recursive: true }), ["out", "out/way", "out/way/evil"]);
});

for (const linkTarget of ["/etc/passwd", "../secret", "deep/up/../../secret", "deep/../../secret"]) {
  test(`a link to ${linkTarget} is left out and reported`, async (t) => {
    const up: Entry = { name: "deep/up", type: "symlink", linkTarget: ".." };
    const { at, download } = await downloadTar(t, tar({ name: "deep/", type: "directory" }, up, { name: "link", type: "symlink", linkTarget }));
    assert.deepEqual(await download(), { files: 0, bytes: 0, skipped: ["link"] });
    await assert.rejects(lstat(join(at, "out/link")), { code: "ENOENT" });
  });
}

test("hard links are kept inside, and devices are left out", async (t) => {
  const { at, download } = await downloadTar(
    t,
    Buffer.concat([
      tar({ name: "a", content: "hello" }).subarray(0, 1024),
      tar({ name: "b", type: "symlink", linkTarget: "a", flag: "1" }).subarray(0, 512),
      tar({ name: "c", type: "symlink", linkTarget: "../../etc/passwd", flag: "1" }).subarray(0, 512),
      tar({ name: "d", flag: "3" }),
    ]),
  );
  assert.deepEqual(await download(), { files: 1, bytes: 5, skipped: ["d", "c"] });
  assert.equal(await readFile(join(at, "out/b"), "utf8"), "hello");
});

test("an archive that is cut off or damaged is an error", async (t) => {
  const whole = tar({ name: "a", content: "x".repeat(2000) });
  const damaged = Buffer.from(whole).fill("y", 0, 5);
  for (const archive of [whole.subarray(0, 700), whole.subarray(0, 300), damaged]) {
    const { at, download } = await downloadTar(t, archive);
    await assert.rejects(download(), /the archive/);
    assert.deepEqual(await readdir(join(at, "out")), []);
  }
});

test("a huge file and names of other tars are understood", async () => {
  async function heads(archive: Uint8Array): Promise<TarHead[]> {
    const out: TarHead[] = [];
    async function* source(): AsyncGenerator<Uint8Array> {
      yield archive;
    }
    try {
      for await (const { content, ...head } of readTar(source())) out.push(head);
    } catch {
      // The content of the huge file is missing.
    }
    return out;
  }
  const size = 9_000_000_000;
  assert.equal((await heads(tarHeader({ name: "huge", type: "file", mode: 0o644, mtime: 0, size })))[0]?.size, size);
  const gnu = Buffer.concat([tar({ name: "././@LongLink", content: `${"g".repeat(150)}\0`, flag: "L" }).subarray(0, 1024), tar({ name: "cut" })]);
  assert.equal((await heads(gnu))[0]?.name, "g".repeat(150));
  const prefixed = Buffer.from(tarHeader({ name: "name", type: "file", mode: 0o644, mtime: 0, size: 0 }));
  prefixed.write("some/prefix", 345);
  assert.equal((await heads(Buffer.concat([reflag(prefixed, "0"), tarEnd])))[0]?.name, "some/prefix/name");
});
