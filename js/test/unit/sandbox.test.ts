import assert from "node:assert/strict";
import { test } from "node:test";
import { CommandError, Sandbox } from "bothy";
import { FakeServer, bytes, json, noContent, sandbox } from "./fake.js";

const result = { exit_code: 0, stdout: "499999500000\n", stderr: "", duration_ms: 120, timed_out: false, oom_killed: false, truncated: false, pid: 7 };

test("create, write, exec, read, terminate: the whole life of a sandbox", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("POST /v1/sandboxes", json(sandbox(), 201))
    .on("PUT /v1/sandboxes/sbx_1/files", json({ name: "main.py", path: "/workspace/main.py", type: "file", size: 28, mode: "0644", modified_at: "2026-01-02T03:04:05Z" }))
    .on("POST /v1/sandboxes/sbx_1/exec", json(result))
    .on("GET /v1/sandboxes/sbx_1/files", bytes(Buffer.from("print(1)")))
    .on("DELETE /v1/sandboxes/sbx_1", noContent);
  {
    await using sbx = await Sandbox.create({ template: "python-3.12", memoryMb: 512, client: fake.client() });
    assert.equal(sbx.id, "sbx_1");
    const written = await sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))");
    assert.deepEqual(written.modifiedAt, new Date("2026-01-02T03:04:05Z"));
    const ran = await sbx.exec("python /workspace/main.py");
    assert.equal(ran.stdout, "499999500000\n");
    assert.equal(ran.durationMs, 120);
    assert.equal(ran.ok, true);
    assert.equal(await sbx.files.read("/workspace/main.py"), "print(1)");
  }
  assert.deepEqual(fake.seen.map((seen) => `${seen.method} ${seen.path}`), [
    "POST /v1/sandboxes",
    "PUT /v1/sandboxes/sbx_1/files",
    "POST /v1/sandboxes/sbx_1/exec",
    "GET /v1/sandboxes/sbx_1/files",
    "DELETE /v1/sandboxes/sbx_1",
  ]);
  const [create, write] = fake.seen;
  assert.deepEqual(create?.json, { template: "python-3.12", memory_mb: 512 });
  assert.equal(create?.headers.authorization, "Bearer bothy_test");
  assert.match(create?.headers["idempotency-key"] as string, /^[0-9a-f-]{36}$/);
  assert.equal(write?.query.get("path"), "/workspace/main.py");
  assert.equal(write?.body.toString(), "print(sum(range(1_000_000)))");
});

test("a sandbox is terminated when its block throws", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", json(sandbox(), 201)).on("DELETE /v1/sandboxes/sbx_1", noContent);
  await assert.rejects(async () => {
    await using sbx = await Sandbox.create({ url: fake.url, apiKey: "bothy_test" });
    throw new Error(`oops in ${sbx.id}`);
  }, /oops in sbx_1/);
  assert.equal(fake.requests("DELETE /v1/sandboxes/sbx_1").length, 1);
});

test("a non-zero exit code is a result, and check makes it an error", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("POST /v1/sandboxes", json(sandbox(), 201))
    .on("POST /v1/sandboxes/sbx_1/exec", json({ ...result, exit_code: 137, stdout: "", stderr: "a\nb\n", oom_killed: true, hint: "Ask for more memory_mb." }));
  const sbx = await fake.client().sandboxes.create();
  const ran = await sbx.exec(["false"], { cwd: "/tmp", env: { MY_KEY: "x" }, user: "root", timeoutSeconds: 5, stdin: "in" });
  assert.equal(ran.ok, false);
  assert.equal(ran.oomKilled, true);
  assert.throws(() => ran.check(), (error: unknown) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.code, "command_failed");
    assert.equal(error.exitCode, 137);
    assert.equal(error.result, ran);
    assert.match(error.message, /ran out of memory and ended with exit code 137: a\nb\. Ask for more memory_mb\./);
    return true;
  });
  const exec = fake.requests("POST /v1/sandboxes/sbx_1/exec")[0];
  assert.deepEqual(exec?.json, { command: ["false"], cwd: "/tmp", env: { MY_KEY: "x" }, user: "root", timeout_seconds: 5, stdin: "in" });
});

test("what the server says arrives in camel case, and the user's own keys untouched", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/sandboxes/sbx_1", json(sandbox({ state: "stopped", ended: { reason: "out_of_memory", detail: "512 MiB were not enough", at: "2026-01-02T03:04:05Z" } })));
  const sbx = await Sandbox.get("sbx_1", { client: fake.client() });
  assert.equal(sbx.info.memoryMb, 512);
  assert.deepEqual(sbx.info.metadata, { team_name: "red" });
  assert.deepEqual(sbx.info.createdAt, new Date("2026-01-02T03:04:05Z"));
  assert.equal(sbx.info.ended?.reason, "out_of_memory");
  assert.deepEqual(sbx.info.ended?.at, new Date("2026-01-02T03:04:05Z"));
});

test("list gives a page when awaited, and everything when looped over", async () => {
  await using fake = await FakeServer.start();
  fake.on(
    "GET /v1/sandboxes",
    json({ items: [sandbox({ id: "sbx_1" }), sandbox({ id: "sbx_2" })], next_cursor: "c2" }),
    json({ items: [sandbox({ id: "sbx_1" }), sandbox({ id: "sbx_2" })], next_cursor: "c2" }),
    json({ items: [sandbox({ id: "sbx_3" })] }),
  );
  const list = Sandbox.list({ state: ["running", "paused"], metadata: { team_name: "red" }, limit: 2, client: fake.client() });
  const page = await list;
  assert.deepEqual(page.items.map((sbx) => sbx.id), ["sbx_1", "sbx_2"]);
  assert.equal(page.nextCursor, "c2");
  assert.deepEqual((await list.all()).map((sbx) => sbx.id), ["sbx_1", "sbx_2", "sbx_3"]);
  const [first, , third] = fake.seen;
  assert.deepEqual([...(first?.query ?? [])], [["state", "running,paused"], ["metadata.team_name", "red"], ["limit", "2"]]);
  assert.equal(third?.query.get("cursor"), "c2");
});

test("an aborted creation is asked for again by its key, and ended", async () => {
  await using fake = await FakeServer.start();
  const stop = new AbortController();
  const ended = new Promise<void>((resolve) => {
    fake
      .on("POST /v1/sandboxes", (_, response) => {
        if (!stop.signal.aborted) return stop.abort();
        response.writeHead(201, { "Content-Type": "application/json" }).end('{"id":"sbx_9"}');
      })
      .on("DELETE /v1/sandboxes/sbx_9", (_, response) => {
        response.writeHead(204).end();
        resolve();
      });
  });
  await assert.rejects(fake.client().sandboxes.create({}, { signal: stop.signal }), { name: "AbortError" });
  await ended;
  const [first, again] = fake.seen;
  assert.ok(first?.headers["idempotency-key"]);
  assert.equal(again?.headers["idempotency-key"], first.headers["idempotency-key"]);
});
