import assert from "node:assert/strict";
import { test } from "node:test";
import { Bothy, CommandError, ConnectionError, NotFoundError, Sandbox, SandboxEndedError, SandboxNotFoundError, TemplateNotFoundError, AuthenticationError } from "bothy";
import { template, until } from "./setup.js";

test("create, write a file, run it, read the output, gone", async () => {
  let id = "";
  {
    await using sbx = await Sandbox.create({ template: "python-3.12" });
    id = sbx.id;
    await sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))");
    const result = await sbx.exec("python /workspace/main.py");
    assert.equal(result.stdout, "499999500000\n");
    assert.equal(result.exitCode, 0);
    assert.ok(result.durationMs > 0 && result.durationMs < 20_000);
  }
  const ended = await Sandbox.get(id);
  assert.equal(ended.info.state, "stopped");
  assert.equal(ended.info.ended?.reason, "terminated");
  assert.ok(ended.info.ended?.at instanceof Date);
  await assert.rejects(ended.exec("true"), SandboxEndedError);
});

test("a sandbox is gone also when its caller throws", async () => {
  let id = "";
  await assert.rejects(async () => {
    await using sbx = await Sandbox.create({ template });
    id = sbx.id;
    throw new Error("oops");
  }, /oops/);
  assert.equal((await Sandbox.get(id)).info.state, "stopped");
});

test("the defaults are those of the documentation", async () => {
  await using sbx = await Sandbox.create();
  const { template, cpu, memoryMb, diskMb, network, timeoutSeconds, onTimeout, state } = sbx.info;
  assert.deepEqual({ template, cpu, memoryMb, diskMb, network, timeoutSeconds, onTimeout, state }, {
    template: "python-3.12", cpu: 1, memoryMb: 512, diskMb: 2048, network: "off", timeoutSeconds: 600, onTimeout: "terminate", state: "running",
  });
  assert.ok(sbx.info.createdAt instanceof Date);
  const left = (sbx.info.expiresAt?.getTime() ?? 0) - Date.now();
  assert.ok(left > 500_000 && left <= 601_000);
});

test("what a command prints, and how it ends, comes back", async () => {
  await using sbx = await Sandbox.create({ template, env: { GREETING: "hello" } });
  const result = await sbx.exec('echo "$GREETING $NAME"; echo oops >&2; pwd; whoami; exit 3', { cwd: "/tmp", env: { NAME: "wörld" } });
  assert.equal(result.stdout, "hello wörld\n/tmp\nuser\n");
  assert.equal(result.stderr, "oops\n");
  assert.equal(result.exitCode, 3);
  assert.ok(result.pid > 0);
  assert.throws(() => result.check(), CommandError);
  assert.equal((await sbx.exec(["printf", "%s|", "a b", "$HOME"])).stdout, "a b|$HOME|");
  assert.equal((await sbx.exec("whoami", { user: "root" })).stdout, "root\n");
  assert.equal((await sbx.exec("cat", { stdin: "from here" })).stdout, "from here");
  assert.equal((await sbx.exec("sudo id -u")).stdout, "0\n");
});

test("a command that takes too long is stopped", async () => {
  await using sbx = await Sandbox.create({ template });
  const result = await sbx.exec("echo begun; sleep 60", { timeoutSeconds: 0.5 });
  assert.equal(result.timedOut, true);
  assert.equal(result.stdout, "begun\n");
  assert.ok(!result.ok);
});

test("output arrives while a command runs", async () => {
  await using sbx = await Sandbox.create({ template });
  await sbx.exec("mkfifo fifo").then((made) => made.check());
  const heard: string[] = [];
  let answer: Promise<unknown> = Promise.reject(new Error("no output came while the command ran"));
  answer.catch(() => undefined);
  const result = await sbx.exec("echo ready; read -r line < fifo; echo got $line", {
    timeoutSeconds: 15,
    onStdout: (text) => {
      // The command waits for this, so its first line has come before its end.
      if (heard.push(text) === 1) answer = sbx.exec("echo answer > fifo");
    },
  });
  await answer;
  assert.equal(heard.join(""), "ready\ngot answer\n");
  assert.equal(result.stdout, "ready\ngot answer\n");
});

test("leaving or aborting ends a command inside the sandbox", async () => {
  await using sbx = await Sandbox.create({ template });
  const alive = async (mark: string): Promise<boolean> => (await sbx.exec(["pgrep", "-f", `^sleep ${mark}$`])).ok;
  const gone = (mark: string): Promise<void> => until(`sleep ${mark} is gone`, async () => !(await alive(mark)));
  for await (const event of sbx.execStream("echo go; exec sleep 1001")) {
    assert.ok(!event.isFinal);
    assert.ok(await alive("1001"));
    break;
  }
  await gone("1001");

  const stop = new AbortController();
  const running = sbx.exec("exec sleep 1002", { signal: stop.signal });
  await until("the command runs", () => alive("1002"));
  stop.abort();
  await assert.rejects(running, { name: "AbortError" });
  await gone("1002");
});

test("two sandboxes do not see each other, and are found by their labels", async () => {
  const mark = crypto.randomUUID();
  await using one = await Sandbox.create({ template, metadata: { run: mark, which: "one" }, name: `one-${mark.slice(0, 8)}` });
  await using two = await Sandbox.create({ template, metadata: { run: mark, which: "two" } });
  await one.files.write("/tmp/secret", "x");
  assert.equal(await two.files.exists("/tmp/secret"), false);
  const ids = (await Sandbox.list({ metadata: { run: mark } }).all()).map((sbx) => sbx.id);
  assert.deepEqual(ids.sort(), [one.id, two.id].sort());
  assert.deepEqual((await Sandbox.list({ metadata: { run: mark, which: "two" } }).all()).map((sbx) => sbx.id), [two.id]);
  assert.deepEqual((await Sandbox.list({ name: one.info.name })).items.map((sbx) => sbx.id), [one.id]);
  const first = await Sandbox.list({ metadata: { run: mark }, limit: 1 });
  assert.equal(first.items.length, 1);
  assert.ok(first.nextCursor);
  assert.deepEqual((await Sandbox.list({ metadata: { run: mark }, state: "stopped" })).items, []);
});

test("a live sandbox changes: time, name, labels, network", async () => {
  await using sbx = await Sandbox.create({ template });
  await sbx.setTimeout(3000);
  assert.equal(sbx.info.timeoutSeconds, 3000);
  await sbx.update({ name: "renamed", metadata: { teamName: "red" } });
  assert.deepEqual([sbx.info.name, sbx.info.metadata], ["renamed", { teamName: "red" }]);
  await sbx.setNetwork({ mode: "restricted", allowDomains: ["*.example.org"], allowPorts: [443] });
  assert.deepEqual((await sbx.refresh()).network, { mode: "restricted", allowDomains: ["*.example.org"], allowPorts: [443] });
  await sbx.setNetwork("off");
  assert.equal(sbx.info.network, "off");
});

test("events tell a sandbox's life", async () => {
  const sbx = await Sandbox.create({ template });
  await sbx.terminate();
  const types: string[] = [];
  for await (const event of sbx.events()) {
    types.push(event.type);
    assert.equal(event.sandboxId, sbx.id);
    if (event.type === "sandbox.ended") break;
  }
  assert.deepEqual([types[0], types.at(-1)], ["sandbox.created", "sandbox.ended"]);
});

test("mistakes are errors of their own kind, with a hint", async () => {
  await assert.rejects(Sandbox.get("nosuchsandbox"), (error: unknown) => {
    assert.ok(error instanceof SandboxNotFoundError && error instanceof NotFoundError);
    assert.equal(error.status, 404);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(Sandbox.create({ template: "no-such-template" }), (error: unknown) => error instanceof TemplateNotFoundError && Boolean(error.hint));
  await assert.rejects(Sandbox.create({ memoryMb: -1 }), { code: "invalid_argument" });
  await assert.rejects(new Bothy({ apiKey: "bothy_wrong" }).sandboxes.create(), AuthenticationError);
  await assert.rejects(new Bothy({ url: "http://127.0.0.1:1", apiKey: "x", maxRetries: 0 }).limits(), ConnectionError);
});

test("an aborted creation leaves nothing behind", async () => {
  const mark = crypto.randomUUID();
  const stop = new AbortController();
  const creating = Sandbox.create({ template, metadata: { run: mark }, signal: stop.signal });
  setImmediate(() => stop.abort());
  await assert.rejects(creating, { name: "AbortError" });
  const states = ["starting", "running"] as const;
  await until("nothing runs", async () => (await Sandbox.list({ metadata: { run: mark }, state: [...states] })).items.length === 0);
});

test("keys are made, limited and revoked", async () => {
  const bothy = new Bothy();
  const token = await bothy.tokens.create({ name: "js e2e", scopes: ["sandboxes:read"] });
  assert.ok(token.key);
  const reader = new Bothy({ apiKey: token.key });
  await reader.sandboxes.list();
  await assert.rejects(reader.sandboxes.create(), { code: "missing_scope", status: 403 });
  assert.ok((await bothy.tokens.list()).some(({ id, key }) => id === token.id && key === undefined));
  await bothy.tokens.delete(token.id);
  await assert.rejects(reader.sandboxes.list().all(), AuthenticationError);
});

test("templates are listed", async () => {
  const bothy = new Bothy();
  const names = (await bothy.templates.list()).map((template) => template.name);
  assert.ok(names.includes("python-3.12") && names.includes("node-22"), names.join());
  assert.ok((await bothy.templates.get("node-22")).sizeBytes > 0);
});

test("node-22 runs JavaScript and has npm", async () => {
  await using sbx = await Sandbox.create({ template: "node-22", memoryMb: 1024 });
  await sbx.files.write("main.mjs", "console.log([1, 2, 3].map((n) => n * n).join())");
  assert.equal((await sbx.exec("node main.mjs")).check().stdout, "1,4,9\n");
  assert.match((await sbx.exec("node --version && npm --version")).check().stdout, /^v22\.[^\n]*\n\d+\.[^\n]*\n$/);
});

