import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import * as bothy from "bothy";
import { type Nature, Transport } from "#internal/transport.js";
import { FakeServer, events, hangUp, json, noContent, problem, sandbox, sendEvents } from "./fake.js";

/** A transport whose pauses take no time and are written down. */
function patient(fake: { url: string }, options: bothy.BothyOptions = {}): { transport: Transport; pauses: number[] } {
  const pauses: number[] = [];
  const nature: Partial<Nature> = {
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      pauses.push(ms);
    },
    random: () => 1,
  };
  return { transport: new Transport({ url: fake.url, apiKey: "bothy_test", ...options }, nature), pauses };
}

const busy = problem(503, "capacity", "the host is full");

test("a call that is refused is tried again, with longer and longer pauses", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/limits", busy, busy, json({ max_sandboxes: 5 }));
  const { transport, pauses } = patient(fake);
  assert.deepEqual(await transport.json({ path: "/v1/limits" }), { maxSandboxes: 5 });
  assert.deepEqual(pauses, [100, 200]);
});

test("Retry-After is obeyed, and not when it asks for too long", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("GET /soon", problem(429, "rate_limited", "slow down", { headers: { "Retry-After": "7" } }), json({}))
    .on("GET /late", problem(429, "rate_limited", "slow down", { headers: { "Retry-After": "3600" } }));
  const { transport, pauses } = patient(fake);
  await transport.json({ path: "/soon" });
  assert.deepEqual(pauses, [7000]);
  await assert.rejects(transport.json({ path: "/late" }), (error: bothy.BothyError) => {
    assert.ok(error instanceof bothy.RateLimitedError);
    assert.equal(error.retryAfterSeconds, 3600);
    return true;
  });
  assert.equal(fake.requests("GET /late").length, 1);
});

test("tries are bounded", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/limits", busy);
  const { transport, pauses } = patient(fake, { maxRetries: 2 });
  await assert.rejects(transport.json({ path: "/v1/limits" }), bothy.CapacityError);
  assert.equal(pauses.length, 2);
  assert.equal(fake.seen.length, 3);
});

test("a used-up quota is not asked about again", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", problem(429, "quota_exceeded", "5 of 5 sandboxes run"));
  const { transport } = patient(fake);
  await assert.rejects(transport.json({ method: "POST", path: "/v1/sandboxes", json: {} }), bothy.QuotaExceededError);
  assert.equal(fake.seen.length, 1);
});

test("a broken connection repeats a creation under the same Idempotency-Key", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", hangUp, json(sandbox(), 201));
  const { transport } = patient(fake);
  await transport.json({ method: "POST", path: "/v1/sandboxes", json: {} });
  const [first, second] = fake.seen.map((seen) => seen.headers["idempotency-key"]);
  assert.match(String(first), /^[0-9a-f-]{36}$/);
  assert.equal(second, first);
});

test("two calls have two keys", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", json(sandbox(), 201));
  const { transport } = patient(fake);
  for (const _ of [1, 2]) await transport.json({ method: "POST", path: "/v1/sandboxes", json: {} });
  const [first, second] = fake.seen.map((seen) => seen.headers["idempotency-key"]);
  assert.notEqual(first, second);
});

test("the answer to a call that is still being worked on is waited for", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", hangUp, problem(409, "conflict", "still being worked on", { headers: { "Retry-After": "1" } }), json(sandbox(), 201));
  const { transport, pauses } = patient(fake);
  await transport.json({ method: "POST", path: "/v1/sandboxes", json: {} });
  assert.deepEqual(pauses, [100, 1000]);
});

test("a command is never begun twice", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes/sbx_1/exec", hangUp).on("POST /v1/sandboxes/sbx_1/code", hangUp);
  const { transport } = patient(fake);
  const sbx = new bothy.Sandbox(transport, { id: "sbx_1" } as bothy.SandboxInfo);
  await assert.rejects(sbx.exec("make install"), bothy.ConnectionError);
  await assert.rejects(sbx.spawn("make install"), bothy.ConnectionError);
  await assert.rejects(sbx.exec("make install", { onStdout: () => undefined }), bothy.ConnectionError);
  await assert.rejects(sbx.runCode("install()"), bothy.ConnectionError);
  assert.equal(fake.seen.length, 4);
});

test("a command that was not begun is tried again", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes/sbx_1/exec", busy, json({ exit_code: 0, stdout: "", stderr: "", duration_ms: 1, pid: 1 }));
  const { transport } = patient(fake);
  await new bothy.Sandbox(transport, { id: "sbx_1" } as bothy.SandboxInfo).exec("true");
  assert.equal(fake.seen.length, 2);
  const [first, again] = fake.seen.map((seen) => seen.headers["idempotency-key"]);
  assert.match(first as string, /^[0-9a-f-]{36}$/);
  assert.equal(again, first, "the server must know that it is the same command");
});

test("a server that is not there is reported with its address and a hint", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  server.close();
  await once(server, "close");
  for (const [options, least, most] of [[{}, 20_000, 25_000], [{ requestTimeoutSeconds: 6 }, 2_000, 6_000], [{ maxRetries: 3 }, 700, 700]] as const) {
    const { transport, pauses } = patient({ url }, options);
    await assert.rejects(transport.json({ method: "POST", path: "/v1/x", repeatable: false }), (error: bothy.BothyError) => {
      assert.ok(error instanceof bothy.ConnectionError);
      assert.match(error.message, new RegExp(`${url} failed: ECONNREFUSED.*bothy up`));
      return true;
    });
    // Nothing was sent, so trying again was safe: the server may be restarting.
    const waited = pauses.reduce((sum, ms) => sum + ms, 0);
    assert.ok(waited >= least && waited <= most, `it is waited for ${waited} ms with ${JSON.stringify(options)}`);
  }
});

test("a stream that a server ends because it shuts down ends with an error", async () => {
  await using fake = await FakeServer.start();
  const closing = { status: 503, code: "shutting_down", detail: "the server is shutting down", hint: "Connect again." };
  fake.on("GET /v1/sandboxes/sbx_1/files/watch", (_, response) => {
    sendEvents(response, { type: "create", path: "/a", name: "a" });
    response.end(`event: error\ndata: ${JSON.stringify(closing)}\n\n`);
  });
  const { transport } = patient(fake);
  const sbx = new bothy.Sandbox(transport, { id: "sbx_1" } as bothy.SandboxInfo);
  const seen: string[] = [];
  await assert.rejects(
    (async () => {
      for await (const change of await sbx.files.watch("/")) seen.push(change.path);
    })(),
    (error: bothy.BothyError) => error instanceof bothy.ConnectionError && error.code === "shutting_down",
  );
  assert.deepEqual(seen, ["/a"]);
});

test("a stream that was handed in is not sent twice", async () => {
  await using fake = await FakeServer.start();
  fake.on("PUT /x", busy, json({}));
  const { transport } = patient(fake);
  await assert.rejects(transport.json({ method: "PUT", path: "/x", body: new Blob(["abc"]).stream() }), bothy.CapacityError);
  assert.equal(fake.seen.length, 1);
  assert.equal(fake.seen[0]?.body.toString(), "abc");
});

test("a body that can be read again is sent again whole", async () => {
  await using fake = await FakeServer.start();
  fake.on("PUT /x", busy, json({}));
  const { transport } = patient(fake);
  await transport.json({ method: "PUT", path: "/x", body: () => new Blob(["abc"]).stream() });
  assert.deepEqual(fake.seen.map((seen) => seen.body.toString()), ["abc", "abc"]);
});

test("a slow answer is a TimeoutError, and the request ends", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => fake.on("GET /slow", (seen) => void seen.gone.then(resolve)));
  const { transport } = patient(fake, { requestTimeoutSeconds: 0.05 });
  await assert.rejects(transport.json({ path: "/slow" }), (error: bothy.BothyError) => {
    assert.ok(error instanceof bothy.TimeoutError);
    assert.match(error.message, /GET \/slow had no answer within 0\.05 seconds/);
    return true;
  });
  await left;
});

test("a time-out of thirty days does not fire at once", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes/sbx_1/exec", json({ exit_code: 0, stdout: "done", stderr: "", duration_ms: 1, pid: 1 }));
  const sbx = new bothy.Sandbox(patient(fake).transport, { id: "sbx_1" } as bothy.SandboxInfo);
  assert.equal((await sbx.exec("x", { timeoutSeconds: 30 * 24 * 3600 })).stdout, "done");
});

test("an aborted call throws the signal's reason and hangs up on the server", async () => {
  await using fake = await FakeServer.start();
  const stop = new AbortController();
  const left = new Promise((resolve) => {
    fake.on("POST /v1/sandboxes/sbx_1/exec", (seen) => {
      void seen.gone.then(resolve);
      stop.abort(new Error("enough"));
    });
  });
  const sbx = new bothy.Sandbox(patient(fake).transport, { id: "sbx_1" } as bothy.SandboxInfo);
  await assert.rejects(sbx.exec("sleep 100", { signal: stop.signal }), /^Error: enough$/);
  await left;
  assert.equal(fake.seen.length, 1);
});

test("a signal that is aborted already sends nothing", async () => {
  await using fake = await FakeServer.start();
  await assert.rejects(fake.client().limits({ signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(fake.seen.length, 0);
});

test("a signal is not held on to by calls that have ended", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/limits", json({})).on("GET /v1/events", events({ id: 1, type: "x", time: "2026-01-02T03:04:05Z" }));
  let listeners = 0;
  const { signal } = new AbortController();
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => (listeners++, addEventListener.apply(signal, args));
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => (listeners--, removeEventListener.apply(signal, args));
  await fake.client().limits({ signal });
  for await (const _ of fake.client().events({ signal })) break;
  assert.equal(listeners, 0);
});

const kinds: [number, string, new (...args: never[]) => bothy.BothyError][] = [
  [401, "unauthenticated", bothy.AuthenticationError],
  [401, "token_expired", bothy.AuthenticationError],
  [403, "missing_scope", bothy.ForbiddenError],
  [404, "sandbox_not_found", bothy.SandboxNotFoundError],
  [404, "template_not_found", bothy.TemplateNotFoundError],
  [404, "project_not_found", bothy.ProjectNotFoundError],
  [404, "file_not_found", bothy.FileNotFoundInSandboxError],
  [404, "something_new", bothy.NotFoundError],
  [409, "sandbox_paused", bothy.SandboxPausedError],
  [409, "sandbox_ended", bothy.SandboxEndedError],
  [409, "something_new", bothy.ConflictError],
  [400, "invalid_argument", bothy.InvalidArgumentError],
  [403, "permission_denied", bothy.PermissionDeniedError],
  [507, "disk_full", bothy.DiskFullError],
  [413, "too_large", bothy.TooLargeError],
  [501, "unsupported", bothy.UnsupportedError],
  [504, "timeout", bothy.TimeoutError],
  [500, "internal", bothy.ServerError],
  [502, "guest_unreachable", bothy.ServerError],
  [418, "teapot", bothy.BothyError],
];

for (const [status, code, Class] of kinds) {
  test(`${status} ${code} is a ${Class.name}`, async () => {
    await using fake = await FakeServer.start();
    fake.on("GET /v1/limits", problem(status, code, "it is so.", { hint: "Do that." }));
    await assert.rejects(fake.client().limits(), (error: bothy.BothyError) => {
      assert.equal(error.constructor, Class);
      assert.equal(error.name, Class.name);
      assert.ok(error instanceof bothy.BothyError);
      assert.deepEqual(
        { code: error.code, status: error.status, detail: error.detail, hint: error.hint, requestId: error.requestId, message: error.message },
        { code, status, detail: "it is so.", hint: "Do that.", requestId: "req_1", message: "it is so. Do that." },
      );
      return true;
    });
  });
}

test("the special errors are also the general ones", () => {
  const fields = { code: "x", detail: "y" };
  assert.ok(new bothy.SandboxNotFoundError(fields) instanceof bothy.NotFoundError);
  assert.ok(new bothy.FileNotFoundInSandboxError(fields) instanceof bothy.NotFoundError);
  assert.ok(new bothy.SandboxPausedError(fields) instanceof bothy.ConflictError);
  assert.ok(new bothy.SandboxEndedError(fields) instanceof bothy.ConflictError);
  assert.ok(new bothy.CredentialsError(fields) instanceof bothy.AuthenticationError);
});

test("an answer that is not Bothy's is said to be so", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("GET /v1/limits", (_, response) => void response.end("<html>hello</html>"))
    .on("GET /v1/usage", (_, response) => void response.writeHead(500).end("<html>oops</html>"));
  await assert.rejects(fake.client().limits(), (error: bothy.BothyError) => {
    assert.ok(error instanceof bothy.ServerError);
    assert.match(error.message, /GET \/v1\/limits is not valid JSON.*BOTHY_URL/);
    return true;
  });
  await assert.rejects(fake.client().usage(), (error: bothy.BothyError) => {
    assert.ok(error instanceof bothy.ServerError);
    assert.equal(error.code, "http_500");
    return true;
  });
});

test("a failure inside a stream is an error of its own kind", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes/sbx_1/exec", (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.end(':\n\nevent: error\ndata: {"status":409,"code":"sandbox_ended","detail":"it ran out of memory","hint":"Give it more."}\n\n');
  });
  const sbx = new bothy.Sandbox(patient(fake).transport, { id: "sbx_1" } as bothy.SandboxInfo);
  await assert.rejects(sbx.exec("x", { onStdout: () => undefined }), (error: bothy.BothyError) => {
    assert.ok(error instanceof bothy.SandboxEndedError);
    assert.equal(error.hint, "Give it more.");
    return true;
  });
});

test("options of the client go with every request", async () => {
  await using fake = await FakeServer.start();
  fake.on("DELETE /v1/snapshots/a%2Fb", noContent);
  let asked = "";
  const ownFetch: typeof fetch = (input, init) => {
    asked = String(input);
    return fetch(input, init);
  };
  await fake.client({ headers: { "X-Team": "red" }, fetch: ownFetch }).snapshots.delete("a/b");
  assert.equal(asked, `${fake.url}/v1/snapshots/a%2Fb`);
  assert.equal(fake.seen[0]?.headers["x-team"], "red");
  assert.match(String(fake.seen[0]?.headers["user-agent"]), /^bothy-js\/\d/);
});

test("a redirect is not followed, because the key would go with it", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/limits", (_, response) => void response.writeHead(302, { Location: "/elsewhere" }).end());
  await assert.rejects(fake.client().limits(), /302/);
  assert.equal(fake.seen.length, 1);
});

test("what has no method of its own is asked for directly, in the API's own names", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("GET /v1/agents", json({ items: [{ max_sessions: 1 }] }))
    .on("POST /v1/agents", json({ id: "agt_1" }, 201))
    .on("DELETE /v1/agents/agt_1", noContent)
    .on("DELETE /v1/agents/agt_2", problem(404, "not_found", "there is none"));
  const client = fake.client();
  assert.deepEqual(await client.request("GET", "/v1/agents", { query: { limit: 2, left: undefined } }), { items: [{ max_sessions: 1 }] });
  assert.deepEqual(await client.request("POST", "/v1/agents", { json: { aB: { cD: 1 } } }), { id: "agt_1" });
  assert.deepEqual(fake.requests("POST /v1/agents").map((seen) => seen.json), [{ aB: { cD: 1 } }]);
  assert.equal(await client.request("DELETE", "/v1/agents/agt_1"), undefined);
  await assert.rejects(client.request("DELETE", "/v1/agents/agt_2"), bothy.BothyError);
});

test("hints are in the words of this package", async () => {
  for (const [hint, expected] of [
    ["Resume it first: POST /v1/sandboxes/sbx1/resume, or ask.", 'Resume it first: Sandbox.resume("sbx1"), or ask.'],
    ["List your sandboxes with `bothy ls --all` or GET /v1/sandboxes.", "List your sandboxes with `bothy ls --all` or Sandbox.list()."],
    ["Make a new one: POST /v1/sandboxes/{id}/links.", "Make a new one: sandbox.createLink()."],
    ["Follow GET /v1/sandboxes/{id}/processes/{pid}/output.", "Follow sandbox.process(pid).output()."],
    ["Look it up with GET /v1/snapshots/snp1.", 'Look it up with client.snapshots.get("snp1").'],
    ["List them with GET /v1/webhooks.", "List them with GET /v1/webhooks."],
  ]) {
    await using fake = await FakeServer.start();
    fake.on("GET /v1/limits", problem(409, "conflict", "it is so.", { hint }));
    await assert.rejects(fake.client().limits(), (error: bothy.BothyError) => error.hint === expected);
  }
});
