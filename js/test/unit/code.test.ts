import assert from "node:assert/strict";
import { test } from "node:test";
import { CodeFailedError, ConnectionError, Sandbox, type SandboxInfo } from "bothy";
import { Transport } from "#internal/transport.js";
import { events, FakeServer, json, noContent } from "./fake.js";

function open(fake: FakeServer): Sandbox {
  return new Sandbox(new Transport({ url: fake.url, apiKey: "bothy_test" }), { id: "sbx_1" } as SandboxInfo);
}

const route = "POST /v1/sandboxes/sbx_1/code";

test("code gives results by MIME type, whose names are left alone", async () => {
  await using fake = await FakeServer.start();
  const results = [{ "text/plain": "<Figure>", "image/png": "aGk=" }, { "text/plain": "42", "application/vnd.my_type+json": "{}" }];
  fake.on(route, json({ results, stdout: "hi\n", stderr: "", execution_count: 2, duration_ms: 9 }));
  const result = await open(fake).runCode("plot(); 42", { language: "python", context: "ctx_1", timeoutSeconds: 5, env: { MY_KEY: "x" } });
  assert.deepEqual(result.results, results);
  assert.equal(result.text, "42");
  assert.equal(result.executionCount, 2);
  assert.equal(result.ok, true);
  assert.equal(result.check(), result);
  assert.deepEqual(fake.seen[0]?.json, { code: "plot(); 42", language: "python", context_id: "ctx_1", timeout_seconds: 5, env: { MY_KEY: "x" } });
});

test("an exception in the code is a result, and check makes it an error", async () => {
  await using fake = await FakeServer.start();
  fake.on(route, json({ results: [], stdout: "", stderr: "", error: { name: "ValueError", value: "no", traceback: "Traceback …" }, execution_count: 1, duration_ms: 1 }));
  const result = await open(fake).runCode("raise ValueError('no')");
  assert.equal(result.ok, false);
  assert.equal(result.text, undefined);
  assert.equal(result.error?.name, "ValueError");
  assert.throws(() => result.check(), (error: unknown) => error instanceof CodeFailedError && /ValueError: no/.test(error.message) && error.result === result);
});

test("callbacks hear what code prints and displays as it happens", async () => {
  await using fake = await FakeServer.start();
  fake.on(
    route,
    events(
      { stream: "stdout", data: "a", offset: 0 },
      { results: [{ "text/plain": "1" }] },
      { stream: "stderr", data: "b", offset: 1 },
      { is_final: true, execution_count: 4, duration_ms: 3, timed_out: true, context_id: "ctx_1", hint: "Give it more time." },
    ),
  );
  const heard: unknown[] = [];
  const result = await open(fake).runCode("x", {
    onStdout: (text) => heard.push(text),
    onStderr: (text) => heard.push(text),
    onResult: (output) => heard.push(output),
  });
  assert.deepEqual(heard, ["a", { "text/plain": "1" }, "b"]);
  assert.deepEqual([result.stdout, result.stderr, result.results, result.executionCount], ["a", "b", [{ "text/plain": "1" }], 4]);
  assert.deepEqual([result.timedOut, result.oomKilled, result.contextId, result.hint], [true, false, "ctx_1", "Give it more time."]);
});

test("a stream that stops before the end of the code is an error", async () => {
  await using fake = await FakeServer.start();
  fake.on(route, events({ stream: "stdout", data: "a", offset: 0 }));
  await assert.rejects(open(fake).runCode("x", { onStdout: () => undefined }), ConnectionError);
});

test("contexts are made, listed and removed", async () => {
  await using fake = await FakeServer.start();
  const path = "/v1/sandboxes/sbx_1/contexts";
  fake
    .on(`POST ${path}`, json({ id: "ctx_1", language: "python", cwd: "/tmp" }, 201))
    .on(`GET ${path}`, json({ items: [{ id: "ctx_1", language: "python" }] }))
    .on(`DELETE ${path}/ctx_1`, noContent)
    .on(`POST ${path}/ctx_1/interrupt`, noContent)
    .on(`POST ${path}/ctx_1/restart`, noContent)
    .on(route, json({ results: [] }));
  const sbx = open(fake);
  const context = await sbx.contexts.create({ language: "python", cwd: "/tmp" });
  await sbx.runCode("x = 1", { context });
  assert.deepEqual(fake.requests(route)[0]?.json, { code: "x = 1", context_id: "ctx_1" });
  assert.deepEqual(await sbx.contexts.list(), [{ id: "ctx_1", language: "python" }]);
  await sbx.contexts.interrupt(context);
  await sbx.contexts.restart("ctx_1");
  await sbx.contexts.remove(context);
});
