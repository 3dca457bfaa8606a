import assert from "node:assert/strict";
import { test } from "node:test";
import { type BothyError, ConnectionError, ProcessNotFoundError, Sandbox, type SandboxInfo } from "bothy";
import { Transport } from "#internal/transport.js";
import { brokenEvents, events, FakeServer, hangUp, json, noContent, problem, sendEvents } from "./fake.js";

function open(fake: FakeServer): Sandbox {
  const transport = new Transport({ url: fake.url, apiKey: "bothy_test" }, { sleep: async () => undefined });
  return new Sandbox(transport, { id: "sbx_1" } as SandboxInfo);
}

const route = "POST /v1/sandboxes/sbx_1/exec";
const output = "GET /v1/sandboxes/sbx_1/processes/7/output";
const end = { is_final: true, exit_code: 3, duration_ms: 12, timed_out: false, oom_killed: false, truncated: false, pid: 7 };
const out = (data: string, offset: number, stream = "stdout"): object => ({ stream, data, offset });

test("callbacks hear output while the command runs, and the result has all of it", async () => {
  await using fake = await FakeServer.start();
  let finish: () => void = () => assert.fail("nothing to finish");
  fake.on(route, (_, response) => {
    sendEvents(response, out("one\n", 0), out("oops\n", 4, "stderr"));
    finish = () => {
      sendEvents(response, out("two\n", 9), end);
      response.end();
    };
  });
  const heard: string[] = [];
  const result = await open(fake).exec("count", {
    onStdout: (text) => heard.push(`out:${text}`),
    onStderr: (text) => {
      heard.push(`err:${text}`);
      finish(); // So the first output came before the end did.
    },
  });
  assert.deepEqual(heard, ["out:one\n", "err:oops\n", "out:two\n"]);
  assert.deepEqual({ ...result }, { exitCode: 3, stdout: "one\ntwo\n", stderr: "oops\n", durationMs: 12, timedOut: false, oomKilled: false, truncated: false, pid: 7, hint: undefined });
  assert.equal(fake.seen[0]?.headers.accept, "text/event-stream");
});

test("a callback that throws ends the command", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => {
    fake.on(route, (seen, response) => {
      void seen.gone.then(resolve);
      sendEvents(response, out("x", 0));
    });
  });
  await assert.rejects(
    open(fake).exec("yes", {
      onStdout: () => {
        throw new Error("no more");
      },
    }),
    /no more/,
  );
  await left;
});

test("leaving the loop over a command's output hangs up, which kills it", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => {
    fake.on(route, (seen, response) => {
      void seen.gone.then(resolve);
      sendEvents(response, out("y\n", 0));
    });
  });
  for await (const event of open(fake).execStream("yes")) {
    assert.ok(!event.isFinal && event.data === "y\n");
    break;
  }
  await left;
});

test("a stream that stops before the end of the command is an error", async () => {
  await using fake = await FakeServer.start();
  fake.on(route, events(out("x", 0)), brokenEvents(out("x", 0)));
  for (const _ of ["ended", "broken"]) {
    await assert.rejects(open(fake).exec("x", { onStdout: () => undefined }), ConnectionError);
  }
});

test("a character that arrives in two pieces is one, and bytes are kept", async () => {
  await using fake = await FakeServer.start();
  const euro = Buffer.from("€");
  const piece = (bytes: Buffer, offset: number): object => ({ stream: "stdout", data: bytes.toString("base64"), encoding: "base64", offset });
  fake.on(route, events(piece(euro.subarray(0, 1), 0), out("é", 1, "stderr"), piece(euro.subarray(1), 3), piece(Buffer.from([0xff]), 5), end));
  const seen: [string, string, number[]][] = [];
  for await (const event of open(fake).execStream("x")) if (!event.isFinal) seen.push([event.stream, event.data, [...event.bytes]]);
  assert.deepEqual(seen, [
    ["stdout", "", [0xe2]],
    ["stderr", "é", [0xc3, 0xa9]],
    ["stdout", "€", [0x82, 0xac]],
    ["stdout", "\ufffd", [0xff]],
  ]);
});

test("output that never ends is bounded: its middle is dropped", async () => {
  await using fake = await FakeServer.start();
  const chunk = "x".repeat(1 << 20);
  fake.on(route, (_, response) => {
    sendEvents(response, out("first\n", 0));
    for (let i = 0; i < 30; i++) sendEvents(response, out(chunk, 6 + i * chunk.length));
    sendEvents(response, out("last\n", 6 + 30 * chunk.length), end);
    response.end();
  });
  const result = await open(fake).exec("x", { onStdout: () => undefined });
  assert.equal(result.truncated, true);
  assert.equal(result.stdout.length, 10 << 20);
  assert.ok(result.stdout.startsWith("first\n") && result.stdout.endsWith("last\n"));
});

test("an empty command is refused before it is sent", async () => {
  await using fake = await FakeServer.start();
  await assert.rejects(open(fake).exec([]), { code: "invalid_argument" });
  await assert.rejects(open(fake).spawn(""), { code: "invalid_argument" });
  assert.equal(fake.seen.length, 0);
});

test("a process is started, listed, written to, signalled and killed", async () => {
  await using fake = await FakeServer.start();
  const base = "/v1/sandboxes/sbx_1/processes";
  fake
    .on(route, json({ pid: 7 }))
    .on(`GET ${base}`, json({ items: [{ pid: 7, command: ["cat"], running: true, output_start: 0, output_end: 5, env: { MY_KEY: "1" } }] }))
    .on(`POST ${base}/7/stdin`, noContent)
    .on(`POST ${base}/7/signal`, noContent)
    .on(`DELETE ${base}/7`, noContent);
  const sbx = open(fake);
  const process = await sbx.spawn("cat", { cwd: "/tmp" });
  assert.equal(process.pid, 7);
  assert.deepEqual(fake.requests(route)[0]?.json, { command: "cat", cwd: "/tmp", background: true });
  assert.deepEqual(await sbx.processes(), [{ pid: 7, command: ["cat"], running: true, outputStart: 0, outputEnd: 5, env: { MY_KEY: "1" } }]);
  await sbx.processes({ all: true });
  assert.deepEqual(fake.requests(`GET ${base}`).map((seen) => seen.query.get("all")), [null, "true"]);
  await process.write("hello\n");
  await process.write(new Uint8Array([0, 255]));
  await process.closeStdin();
  assert.deepEqual(fake.requests(`POST ${base}/7/stdin`).map((seen) => seen.json), [{ data: "hello\n" }, { data: "AP8=", encoding: "base64" }, { eof: true }]);
  await process.signal("SIGINT");
  await process.signal(10);
  assert.deepEqual(fake.requests(`POST ${base}/7/signal`).map((seen) => seen.json), [{ signal: 2 }, { signal: 10 }]);
  await assert.rejects(process.signal(0), { code: "invalid_argument" });
  await process.kill();
  assert.equal(fake.requests(`DELETE ${base}/7`).length, 1);
});

test("long input is written in pieces that the server takes, in order", async () => {
  await using fake = await FakeServer.start();
  const stdin = "POST /v1/sandboxes/sbx_1/processes/7/stdin";
  fake.on(stdin, noContent);
  const text = "zwölf €".repeat(300_000);
  await open(fake).process(7).write(text);
  const pieces = fake.requests(stdin).map((seen) => Buffer.from((seen.json as { data: string }).data, "base64"));
  assert.ok(pieces.length > 2 && pieces.every((piece) => piece.length <= 1 << 20));
  assert.equal(Buffer.concat(pieces).toString(), text);
});

test("output is joined again where it broke off: nothing is lost and nothing doubled", async () => {
  await using fake = await FakeServer.start();
  fake.on(
    output,
    brokenEvents(out("one ", 0)),
    hangUp, // not even an answer
    events(out("two ", 4)), // ends without an end
    brokenEvents(out("one two thr", 0)), // sends again what was seen
    events(out("ee ", 11), out("four", 14, "stderr"), end),
  );
  const seen: string[] = [];
  let position = 0;
  for await (const event of open(fake).process(7)) {
    if (event.isFinal) {
      assert.equal(event.exitCode, 3);
      continue;
    }
    assert.equal(event.offset, position);
    position += event.bytes.length;
    seen.push(event.data);
  }
  assert.equal(seen.join(""), "one two three four");
  assert.deepEqual(fake.seen.map((request) => request.query.get("from")), ["0", "4", "4", "8", "11"]);
});

test("output can be followed from any byte, and what is gone is skipped", async () => {
  await using fake = await FakeServer.start();
  fake.on(output, events(out("later", 100), end));
  const offsets: number[] = [];
  for await (const event of open(fake).process(7).output(10)) if (!event.isFinal) offsets.push(event.offset);
  assert.deepEqual(offsets, [100]);
  assert.equal(fake.seen[0]?.query.get("from"), "10");
  const result = await open(fake).process(7).wait();
  assert.equal(result.truncated, true, "the first 100 bytes are missing");
});

test("wait returns the whole result, and asks the server once", async () => {
  await using fake = await FakeServer.start();
  fake.on(output, events(out("a", 0), out("b", 1, "stderr"), end));
  const process = open(fake).process(7);
  const result = await process.wait();
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.truncated, result.pid], [3, "a", "b", false, 7]);
  assert.equal(await process.wait(), result);
  assert.equal(fake.seen.length, 1);
});

test("joining again is bounded when nothing comes any more", async () => {
  await using fake = await FakeServer.start();
  fake.on(output, events());
  await assert.rejects(open(fake).process(7).wait(), ConnectionError);
  assert.ok(fake.seen.length > 3 && fake.seen.length < 20);
});

test("a process that is not there is not asked for again", async () => {
  await using fake = await FakeServer.start();
  fake.on(output, problem(404, "process_not_found", "there is no process 7"));
  await assert.rejects(open(fake).process(7).wait(), (error: BothyError) => error instanceof ProcessNotFoundError);
  assert.equal(fake.seen.length, 1);
});

test("leaving the loop over a process's output does not touch the process", async () => {
  await using fake = await FakeServer.start();
  const left = new Promise((resolve) => {
    fake.on(output, (seen, response) => {
      void seen.gone.then(resolve);
      sendEvents(response, out("tick\n", 0));
    });
  });
  for await (const _ of open(fake).process(7)) break;
  await left;
  assert.deepEqual(fake.seen.map((seen) => seen.method), ["GET"]);
});

test("an aborted follower stops waiting", async () => {
  await using fake = await FakeServer.start();
  const stop = new AbortController();
  fake.on(output, (_, response) => sendEvents(response, out("tick\n", 0)));
  await assert.rejects(async () => {
    for await (const _ of open(fake).process(7).output(0, { signal: stop.signal })) stop.abort();
  }, { name: "AbortError" });
});

test("bytes go in and come out as they are", async () => {
  await using fake = await FakeServer.start();
  const raw = Uint8Array.of(0, 97, 255, 254);
  const base64 = Buffer.from(raw).toString("base64");
  fake.on(route, (seen, response) => {
    if (seen.headers.accept === "text/event-stream") {
      sendEvents(response, { stream: "stdout", data: base64, encoding: "base64", offset: 0 }, end);
      response.end();
    } else {
      void json({ exit_code: 0, stdout: "\0a\ufffd\ufffd", stdout_base64: base64, stderr: "ü", duration_ms: 1, pid: 7 })(seen, response);
    }
  });
  for (const options of [{}, { onStdout: () => undefined }]) {
    const result = await open(fake).exec("cat", { stdin: raw, mergeStderr: true, keepRunning: true, ...options });
    assert.equal(result.stdout, "\0a\ufffd\ufffd");
    assert.deepEqual(result.stdoutBytes, raw);
    assert.equal(new TextDecoder().decode(result.stderrBytes), result.stderr);
    assert.deepEqual(fake.seen.at(-1)?.json, { command: "cat", stdin: base64, stdin_encoding: "base64", merge_stderr: true, keep_running: true });
  }
});
