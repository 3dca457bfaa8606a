import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { HarnessCapabilityUnsupportedError, HarnessSandboxAuthenticationError } from "@ai-sdk/harness";
import { HarnessAgent, prepareHarnessSandboxTemplate } from "@ai-sdk/harness/agent";
import { Bothy } from "bothy";
import { bothySandbox } from "bothy-ai-sdk-harness";
import WebSocket from "ws";
import { scripted } from "../examples/scripted.js";

const client = new Bothy();
const provider = bothySandbox({ client, ports: [4000, 4001], metadata: { of: "a test" } });

let session;
before(async () => {
  session = await provider.createSession();
});
after(() => session?.destroy());

/** Waits until a command in the sandbox succeeds. */
async function until(command) {
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
    if ((await session.run({ command })).exitCode === 0) return;
  }
  assert.fail(`not within a minute: ${command}`);
}

const all = async (stream) => Buffer.concat(await Array.fromAsync(stream)).toString();
const stateOf = async (id) => (await client.sandboxes.get(id)).info.state;

test("commands", async () => {
  const done = await session.run({ command: "echo $A $PWD; echo bad >&2; exit 3", env: { A: "grüß dich" } });
  assert.deepEqual(done, { exitCode: 3, stdout: "grüß dich /workspace\n", stderr: "bad\n" });
  assert.equal(session.defaultWorkingDirectory, "/workspace");
  assert.equal((await session.run({ command: "pwd", workingDirectory: "/tmp" })).stdout, "/tmp\n");
  await session.run({ command: "mkdir -p below" });
  assert.equal((await session.run({ command: "pwd", workingDirectory: "below" })).stdout, "/workspace/below\n");
  assert.match(session.description, /node-22.*\/workspace/);
});

test("an abort ends a command", async () => {
  const stop = new AbortController();
  const running = session.run({ command: "touch /tmp/begun; exec sleep 4321", abortSignal: stop.signal });
  await until("test -e /tmp/begun && pgrep -f '^sleep 4321'");
  stop.abort(new Error("enough"));
  await assert.rejects(async () => running, /enough/);
  await until("! pgrep -f '^sleep 4321'");
});

test("a process has two streams, an end, and can be killed", async () => {
  const process = await session.spawn({ command: "echo out; echo bad >&2; printf '\\xff\\xfe'; exit 7", workingDirectory: "/tmp" });
  assert.equal(await all(process.stderr), "bad\n");
  assert.deepEqual(await process.wait(), { exitCode: 7 });
  assert.deepEqual([...Buffer.concat(await Array.fromAsync(process.stdout))].slice(-2), [255, 254]);
  await process.kill();
  const long = await session.spawn({ command: "exec sleep 5432" });
  assert.ok(long.pid > 0);
  await until("pgrep -f '^sleep 5432'");
  await long.kill();
  await long.kill();
  assert.notEqual((await long.wait()).exitCode, 0);
  const stop = new AbortController();
  const aborted = await session.spawn({ command: "exec sleep 6543", abortSignal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(async () => aborted.wait(), /enough/);
  await until("! pgrep -f '^sleep 6543'");
});

test("output that nobody reads waits in the sandbox, and is there when somebody does", async () => {
  const process = await session.spawn({ command: "echo one; until test -e /tmp/go; do sleep 0.05; done; echo two; echo bad >&2; seq 100000" });
  const reader = process.stdout.getReader();
  assert.equal(Buffer.from((await reader.read()).value).toString(), "one\n");
  await session.run({ command: "touch /tmp/go" });
  let rest = "";
  for (let next = await reader.read(); !next.done; next = await reader.read()) rest += Buffer.from(next.value).toString();
  assert.ok(rest.startsWith("two\n1\n") && rest.endsWith("\n100000\n"));
  assert.equal(rest.split("\n").length, 100_002);
  assert.equal(await all(process.stderr), "bad\n");
  assert.deepEqual(await process.wait(), { exitCode: 0 });
});

test("files", async () => {
  const path = "a folder/naïve 文件 'q\".bin";
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  await session.writeBinaryFile({ path, content: bytes });
  assert.deepEqual(new Uint8Array(await session.readBinaryFile({ path: `/workspace/${path}` })), bytes);
  await session.writeFile({ path: "streamed", content: new Blob(["one ", "two"]).stream() });
  assert.equal(await all(await session.readFile({ path: "streamed" })), "one two");
  for (const read of ["readFile", "readBinaryFile", "readTextFile"]) {
    assert.equal(await session[read]({ path: "nowhere" }), null);
    assert.equal(await session[read]({ path: "streamed/below" }), null);
  }
  await assert.rejects(async () => session.readTextFile({ path: "/workspace" }), { code: "is_a_directory" });
});

test("text has lines and an encoding", async () => {
  await session.writeTextFile({ path: "lines", content: "one\r\ntwo\r\ndrei ü\n" });
  const lines = (startLine, endLine) => session.readTextFile({ path: "lines", startLine, endLine });
  assert.deepEqual([await lines(), await lines(1, 1), await lines(2, 3), await lines(3, 99), await lines(99)], ["one\r\ntwo\r\ndrei ü\n", "one", "two\r\ndrei ü", "drei ü\n", ""]);
  await session.writeTextFile({ path: "latin", content: "ü", encoding: "latin1" });
  assert.deepEqual([...(await session.readBinaryFile({ path: "latin" }))], [0xfc]);
  assert.equal(await session.readTextFile({ path: "latin", encoding: "latin1" }), "ü");
  await assert.rejects(async () => session.readTextFile({ path: "latin", encoding: "ebcdic" }), RangeError);
});

test("the restricted view has files and commands, and nothing else", async () => {
  const view = session.restricted();
  assert.equal((await view.run({ command: "echo hi" })).stdout, "hi\n");
  await view.writeTextFile({ path: "seen", content: "x" });
  assert.equal(await session.readTextFile({ path: "seen" }), "x");
  for (const name of ["stop", "destroy", "setNetworkPolicy", "addRequestTransformations", "getPortEndpoint", "sandbox", "id"]) assert.equal(view[name], undefined);
});

test("ports are reached with headers, WebSockets too, and by links without", async () => {
  const server = await session.spawn({ command: "exec node -e 'require(\"http\").createServer((q, r) => r.end(q.url)).on(\"upgrade\", (q, s) => s.end(\"HTTP/1.1 418 Teapot\\r\\n\\r\\n\")).listen(4001)'" });
  await until("exec 3<>/dev/tcp/127.0.0.1/4001");
  const { url, headers } = await session.getPortEndpoint({ port: 4001 });
  assert.equal(await (await fetch(`${url}some/path?a=b`, { headers })).text(), "/some/path?a=b");
  assert.equal((await fetch(url)).status, 401);
  const ws = await session.getPortEndpoint({ port: 4001, protocol: "ws" });
  const status = await new Promise((resolve, reject) => {
    const refused = (request, { statusCode }) => {
      request.destroy();
      resolve(statusCode);
    };
    new WebSocket(ws.url, { headers: ws.headers }).on("unexpected-response", refused).on("error", reject);
  });
  assert.equal(status, 418);
  const link = new URL(await session.getPortUrl({ port: 4001 }));
  assert.match(link.pathname, /^\/_bothy\//);
  assert.equal((await session.sandbox.links())[0].kind, "webhook");
  await assert.rejects(async () => session.getPortEndpoint({ port: 9 }), HarnessCapabilityUnsupportedError);
  await assert.rejects(async () => session.getPortEndpoint({ port: 4001, protocol: "https" }), /no TLS/);
  await session.setPorts([9]);
  assert.deepEqual(session.ports, [9]);
  assert.ok((await session.getPortEndpoint({ port: 9 })).url);
  await session.setPorts([4000, 4001]);
  await server.kill();
});

test("network policies", async () => {
  const set = async (policy) => {
    await session.setNetworkPolicy(policy);
    return (await session.sandbox.refresh()).network;
  };
  const modes = async (policy) => (({ mode, allowDomains, allowCidrs, denyCidrs }) => [mode, allowDomains, allowCidrs, denyCidrs])(Object((n) => (typeof n === "string" ? { mode: n } : n))(await set(policy)));
  assert.equal((await modes({ mode: "allow-all" }))[0], "open");
  assert.deepEqual(await modes({ mode: "custom", allowedHosts: ["api.example.com", "*.example.org"], allowedCIDRs: ["198.51.100.0/24"] }), ["restricted", ["api.example.com", "*.example.org"], ["198.51.100.0/24"], undefined]);
  assert.deepEqual(await modes({ mode: "custom", allowedCIDRs: ["198.51.100.0/24"], deniedCIDRs: ["198.51.100.64/26", "203.0.113.0/24"] }), ["restricted", undefined, ["198.51.100.0/26", "198.51.100.128/25"], undefined]);
  assert.deepEqual(await modes({ mode: "custom", allowedCIDRs: ["0.0.0.0/0"], deniedCIDRs: ["192.0.2.0/24"] }), ["open", undefined, undefined, ["192.0.2.0/24"]]);
  await assert.rejects(async () => set({ mode: "custom", allowedHosts: ["a.example"], deniedCIDRs: ["192.0.2.0/24"] }), HarnessCapabilityUnsupportedError);
  await assert.rejects(async () => set({ mode: "custom", allowedHosts: ["*"] }), /allow-all/);
  await assert.rejects(async () => set({ mode: "custom", allowedCIDRs: ["::/0"], deniedCIDRs: ["::1/128"] }), /IPv4/);
  assert.equal((await modes({ mode: "deny-all" }))[0], "off");
});

test("rules that would reach further than they say are refused, unless that is wanted", async () => {
  const rule = (match, headers = { Authorization: "Bearer real-credential" }) => [{ match: { host: "api.example.com", ...match }, transform: { headers } }];
  for (const [match, word] of [
    [{ path: { startsWith: "/v1" } }, "a path"],
    [{ method: ["GET"] }, "a method"],
    [{ path: { exact: "/" }, queryString: [] }, "a path and a query"],
    [{ headers: [{ key: { exact: "x-other" }, value: { exact: "y" } }] }, "does not replace"],
    [{ headers: [{ key: { exact: "authorization" }, value: { startsWith: "Bearer" } }] }, "does not replace"],
    [{ host: "*" }, "Name the host"],
  ]) {
    await assert.rejects(async () => session.addRequestTransformations(rule(match)), (error) => HarnessCapabilityUnsupportedError.isInstance(error) && error.message.includes(word));
  }
  assert.deepEqual((await session.sandbox.refresh()).secretNames ?? [], []);
  const wide = await bothySandbox({ sandbox: session.sandbox, wholeHosts: true }).createSession();
  await wide.setRequestTransformations(rule({ path: { startsWith: "/v1" } }));
  assert.equal((await session.sandbox.refresh()).secretNames.length, 1);
  await wide.setRequestTransformations([]);
  assert.deepEqual((await session.sandbox.refresh()).secretNames ?? [], []);
});

test("rules are added, replaced and kept apart from the sandbox's own secrets", async () => {
  const own = [{ name: "OWN", value: "value of its own", hosts: ["own.example.com"] }];
  const wrapped = bothySandbox({ sandbox: session.sandbox, secrets: own });
  await session.sandbox.update({ secrets: own });
  const names = async () => (await session.sandbox.refresh()).secretNames.toSorted();
  const rule = (host, value, placeholder) => ({ match: { host, headers: [{ key: { exact: "authorization" }, value: { exact: placeholder } }] }, transform: { headers: { Authorization: value, "X-Team": "team one" } } });
  const first = await wrapped.createSession();
  await Promise.all([first.addRequestTransformations([rule("one.example.com", "Bearer one", "a")]), first.addRequestTransformations([rule("two.example.com", "Bearer two", "b")])]);
  assert.equal((await names()).length, 5);
  assert.ok((await names()).includes("OWN"));
  await first.addRequestTransformations([rule("one.example.com", "Bearer renewed", "a")]);
  assert.equal((await names()).length, 5);
  await assert.rejects(async () => first.addRequestTransformations([rule("ONE.example.com", "Bearer other", "z")]), /two values for the header authorization/);
  const second = await wrapped.createSession();
  await assert.rejects(async () => second.addRequestTransformations([rule("one.example.com", "Bearer one", "c")]), /earlier session/);
  await second.addRequestTransformations([rule("one.example.com", "Bearer one", "c"), rule("two.example.com", "Bearer two", "d")]);
  await second.setRequestTransformations([]);
  assert.deepEqual(await names(), ["OWN"]);
  const stranger = await bothySandbox({ sandbox: session.sandbox }).createSession();
  await assert.rejects(async () => stranger.addRequestTransformations([rule("one.example.com", "Bearer one", "c")]), /\(OWN\)/);
  await session.sandbox.update({ secrets: [] });
});

test("a session is stopped, resumed with its memory, and destroyed", async () => {
  const sessionId = `s-${crypto.randomUUID()}`;
  const one = await provider.createSession({ sessionId });
  const process = await one.spawn({ command: "exec sleep 7654" });
  await one.stop();
  await one.stop();
  assert.equal(await stateOf(one.id), "paused");
  const two = await provider.resumeSession({ sessionId });
  assert.equal(two.id, one.id);
  assert.equal((await two.run({ command: `kill -0 ${process.pid}` })).exitCode, 0);
  assert.equal((await client.sandboxes.get(one.id)).info.metadata.of, "a test");
  await two.stop();
  await two.destroy();
  await two.destroy();
  await one.stop();
  await assert.rejects(async () => process.wait(), /session was stopped/);
  assert.equal(await stateOf(one.id), "stopped");
  await assert.rejects(async () => provider.resumeSession({ sessionId }), /no sandbox of the session/);
});

test("what is prepared is done once, and the next sandbox starts with it", async () => {
  const identity = crypto.randomUUID();
  let prepared = 0;
  const onFirstCreate = async (view) => {
    prepared++;
    await view.writeTextFile({ path: "prepared", content: `${prepared}` });
  };
  const sessions = [];
  try {
    for (let n = 0; n < 2; n++) sessions.push(await provider.createSession({ identity, onFirstCreate }));
    assert.deepEqual([prepared, await sessions[1].readTextFile({ path: "prepared" })], [1, "1"]);
    assert.notEqual(sessions[0].id, sessions[1].id);
    const failing = provider.createSession({ sessionId: identity, identity: `${identity}-2`, onFirstCreate: async () => Promise.reject(new Error("no")) });
    await assert.rejects(async () => failing, /^Error: no$/);
    assert.deepEqual((await client.sandboxes.list({ live: true, metadata: { "ai-sdk-harness-session": identity } })).items, []);
  } finally {
    for (const one of sessions) await one.stop();
    for await (const snapshot of client.snapshots.list()) if (snapshot.name?.includes(identity)) await client.snapshots.delete(snapshot.id);
  }
  assert.equal(await stateOf(sessions[0].id), "stopped", "a session that nobody can resume is ended by stop");
});

test("what a session waits for is said while the harness installs", async (t) => {
  const told = [];
  const listen = (warning) => warning.code === "BOTHY_WAITING" && told.push(warning.message);
  process.on("warning", listen);
  t.after(() => process.off("warning", listen));
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const onFirstCreate = async () => {
    t.mock.timers.tick(10_000);
    throw new Error("enough");
  };
  await assert.rejects(async () => provider.createSession({ identity: crypto.randomUUID(), onFirstCreate }), /^Error: enough$/);
  t.mock.timers.reset();
  await new Promise(setImmediate);
  assert.match(told.join(), /^the harness installs what it needs in the sandbox sbx/);
});

test("a given sandbox is neither stopped nor ended", async () => {
  const given = await bothySandbox({ sandbox: session.sandbox }).createSession({ sessionId: "x", identity: "y", onFirstCreate: () => assert.fail("it is the caller's") });
  await given.stop();
  await given.destroy();
  assert.equal(await stateOf(session.id), "running");
});

test("a key that does not do is told in the framework's words", async () => {
  const error = await Promise.resolve(bothySandbox({ url: process.env.BOTHY_URL, apiKey: "bothy_wrong" }).createSession()).catch((e) => e);
  assert.ok(HarnessSandboxAuthenticationError.isInstance(error), String(error));
  assert.match(error.message, /BOTHY_API_KEY/);
});

test("an agent works over its bridge, is detached, stopped and taken up again", async () => {
  const harness = scripted({ commands: ["pwd", "echo one >file"], say: "in {0}" }, { commands: ["cat file"], say: "said {0}" }, { commands: ["cat file; hostname >/dev/null"], say: "still {0}" });
  const agent = new HarnessAgent({ harness, sandbox: provider });
  const sessionId = `s-${crypto.randomUUID()}`;
  let running = await agent.createSession({ sessionId });
  try {
    const first = await agent.generate({ session: running, prompt: "go" });
    assert.equal(first.text, `in /workspace/scripted-${sessionId}`);
    const again = async (resumeFrom) => {
      running = await agent.createSession({ sessionId, resumeFrom });
      return (await agent.generate({ session: running, prompt: "go on" })).text;
    };
    assert.equal(await again(await running.detach()), "said one");
    const state = await running.stop();
    assert.equal(state.type, "resume-session");
    const [sandbox] = (await client.sandboxes.list({ live: true, metadata: { "ai-sdk-harness-session": sessionId } })).items;
    assert.equal(sandbox.info.state, "paused");
    assert.equal(await again({ ...state, data: undefined }), "still one");
  } finally {
    await running.destroy();
  }
  assert.deepEqual((await client.sandboxes.list({ live: true, metadata: { "ai-sdk-harness-session": sessionId } })).items, []);
});

test("a template is prepared before there are sessions", async () => {
  const harness = scripted();
  await prepareHarnessSandboxTemplate({ harness, sandboxProvider: provider });
  let snapshots = 0;
  for await (const { name } of client.snapshots.list()) snapshots += name?.startsWith("ai-sdk-harness-") ? 1 : 0;
  assert.ok(snapshots > 0);
});

test("an untested version says so once", async () => {
  const { checkVersion } = await import("../dist/tested.js");
  const told = [];
  const listen = (warning) => warning.code === "BOTHY_UNTESTED_VERSION" && told.push(warning.message);
  process.on("warning", listen);
  for (const version of ["1.0.122", "1.0.200", "2.0.0"]) checkVersion(version);
  await new Promise(setImmediate);
  process.off("warning", listen);
  assert.deepEqual(told, ["bothy-ai-sdk-harness was tested with @ai-sdk/harness 1.0.122, not with 1.0.200. It may work."]);
});

test("the example", () => {
  const example = fileURLToPath(new URL("../examples/agent.js", import.meta.url));
  assert.equal(execFileSync(process.execPath, [example], { encoding: "utf8" }), "The sum is 285.\n");
});
