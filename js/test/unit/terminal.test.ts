import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { ConnectionError, Sandbox, type SandboxInfo, SandboxPausedError } from "bothy";
import { FrameReader } from "#internal/websocket.js";
import { Transport } from "#internal/transport.js";
import { FakeServer, problem } from "./fake.js";
import { ServerSocket } from "./socket.js";

const text = 1;
const binary = 2;

function open(fake: FakeServer): Sandbox {
  return new Sandbox(new Transport({ url: fake.url, apiKey: "bothy_test" }), { id: "sbx_1" } as SandboxInfo);
}

/** Resolves with the server's end of the next connection, which is not accepted yet. */
function nextSocket(fake: FakeServer): Promise<ServerSocket> {
  return new Promise((resolve) => fake.onUpgrade(resolve));
}

async function printed(terminal: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of terminal) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

test("a terminal types, resizes, prints, and tells how its process ended", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal({ cols: 120, rows: 40, user: "root", env: { TERM_PROGRAM: "x" }, command: ["echo", "it's"] });
  const server = (await arriving).accept({ "X-Process-Id": "42" });
  await using terminal = await opening;

  const url = new URL(server.target, fake.url);
  assert.equal(url.pathname, "/v1/sandboxes/sbx_1/terminal");
  assert.deepEqual(Object.fromEntries(url.searchParams), { cols: "120", rows: "40", user: "root", "env.TERM_PROGRAM": "x", command: "exec 'echo' 'it'\\''s'" });
  assert.equal(server.headers.authorization, "Bearer bothy_test");
  assert.equal(terminal.pid, 42);

  await terminal.write("ls -l\n");
  assert.deepEqual(await server.receive(), { op: binary, payload: Buffer.from("ls -l\n") });
  await terminal.resize(80, 24);
  const resize = await server.receive();
  assert.equal(resize.op, text);
  assert.deepEqual(JSON.parse(resize.payload.toString()), { resize: { cols: 80, rows: 24 } });

  assert.equal(terminal.exitCode, undefined);
  server.send(ServerSocket.frame(binary, "total "), ServerSocket.frame(binary, "0\r\n"));
  server.close(1000, '{"exit_code":3}');
  assert.equal(await printed(terminal), "total 0\r\n");
  assert.equal(terminal.exitCode, 3);
  assert.equal(await terminal.wait(), 3);
  await server.closed;
});

test("a large paste goes out in frames that the server takes", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal();
  const server = (await arriving).accept();
  await using terminal = await opening;
  const paste = Buffer.alloc(700_000, "abcdefg");
  const writing = terminal.write(paste);
  const received: Buffer[] = [];
  while (Buffer.concat(received).length < paste.length) {
    const { payload } = await server.receive();
    assert.ok(payload.length <= 1 << 18);
    received.push(payload);
  }
  await writing;
  assert.ok(Buffer.concat(received).equals(paste));
});

test("messages in pieces, pings between them, and frames of every length arrive whole", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal();
  const server = (await arriving).accept();
  await using terminal = await opening;
  server.send(ServerSocket.frame(binary, "a", false), ServerSocket.frame(9, "are you there"), ServerSocket.frame(0, "b", false), ServerSocket.frame(0, "c"));
  const sizes = [0, 125, 126, 65535, 65536, 200_000];
  for (const size of sizes) server.send(ServerSocket.frame(binary, Buffer.alloc(size, "x")));
  server.close(1000);
  assert.equal((await printed(terminal)).length, 3 + sizes.reduce((sum, size) => sum + size));
  assert.deepEqual(await server.receive(), { op: 10, payload: Buffer.from("are you there") });
});

test("closing a terminal says goodbye and ends the loop over it", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal();
  const server = (await arriving).accept();
  const terminal = await opening;
  const reading = printed(terminal);
  await terminal.close();
  await terminal.close();
  assert.equal(await reading, "");
  assert.deepEqual(await server.receive(), { op: 8, payload: Buffer.from([0x03, 0xe8]) });
  await server.closed;
  await assert.rejects(terminal.write("x"), ConnectionError);
  await assert.rejects(terminal.wait(), ConnectionError);
});

for (const [how, act] of [
  ["is cut", (server: ServerSocket): unknown => server.destroy()],
  ["is closed because the server goes away", (server: ServerSocket): void => server.close(1001, "the server is closing")],
  ["sends a masked frame", (server: ServerSocket): void => server.send(Buffer.from([0x82, 0x80, 1, 2, 3, 4]))],
  ["uses an unknown extension", (server: ServerSocket): void => server.send(Buffer.from([0xc2, 0x00]))],
  ["announces a huge frame", (server: ServerSocket): void => server.send(Buffer.from([0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0]))],
] as const) {
  test(`a connection that ${how} is an error in the loop`, async () => {
    await using fake = await FakeServer.start();
    const arriving = nextSocket(fake);
    const opening = open(fake).terminal();
    const server = (await arriving).accept();
    await using terminal = await opening;
    act(server);
    await assert.rejects(printed(terminal), ConnectionError);
  });
}

test("aborting ends a terminal with the signal's reason", async () => {
  await using fake = await FakeServer.start();
  const stop = new AbortController();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal({ signal: stop.signal });
  const server = (await arriving).accept();
  const terminal = await opening;
  stop.abort(new Error("enough"));
  await assert.rejects(printed(terminal), /^Error: enough$/);
  await server.closed;
});

test("aborting while a terminal is opened throws the signal's reason", async () => {
  await using fake = await FakeServer.start();
  const stop = new AbortController();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal({ signal: stop.signal });
  const server = await arriving;
  stop.abort(new Error("enough"));
  await assert.rejects(opening, /^Error: enough$/);
  await server.closed;
});

test("a refused terminal is an error of its own kind", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/sandboxes/sbx_1/terminal", problem(409, "sandbox_paused", "the sandbox is paused"));
  await assert.rejects(open(fake).terminal(), SandboxPausedError);
});

test("a server that does not know the secret of the handshake is not believed", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const opening = open(fake).terminal();
  (await arriving).accept({ "Sec-WebSocket-Accept": "bm8=" });
  await assert.rejects(opening, ConnectionError);
});

test("frames are found however the bytes are cut", () => {
  const bytes = Buffer.concat([ServerSocket.frame(binary, "hello"), ServerSocket.frame(text, "x".repeat(300)), ServerSocket.frame(binary, Buffer.alloc(70_000))]);
  for (const size of [1, 2, 3, 7, 100, 65_000]) {
    const reader = new FrameReader();
    const lengths: number[] = [];
    for (let at = 0; at < bytes.length; at += size) lengths.push(...reader.push(bytes.subarray(at, at + size)).map((frame) => frame.payload.length));
    assert.deepEqual(lengths, [5, 300, 70_000]);
  }
});

async function everything(socket: Socket): Promise<string> {
  let all = "";
  for await (const chunk of socket.setEncoding("utf8")) all += chunk as string;
  return all;
}

test("a forwarded port carries bytes both ways", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  await using forward = await open(fake).forward(8080);
  assert.equal(forward.url, `http://127.0.0.1:${forward.port}`);
  const local = connect(forward.port, forward.host);
  const server = (await arriving).accept();
  assert.equal(new URL(server.target, fake.url).pathname, "/v1/sandboxes/sbx_1/ports/8080");
  local.write("GET / HTTP/1.0\r\n\r\n");
  assert.equal((await server.receive()).payload.toString(), "GET / HTTP/1.0\r\n\r\n");
  server.send(ServerSocket.frame(binary, "HTTP/1.0 200 OK\r\n\r\n"), ServerSocket.frame(binary, "hello"));
  server.close(1000);
  assert.equal(await everything(local), "HTTP/1.0 200 OK\r\n\r\nhello");
});

test("a port of a sandbox where nobody listens hangs up on the local connection", async () => {
  await using fake = await FakeServer.start();
  fake.on("GET /v1/sandboxes/sbx_1/ports/8080", problem(502, "guest_unreachable", "nobody listens on port 8080"));
  await using forward = await open(fake).forward(8080);
  const local = connect(forward.port, forward.host);
  local.on("error", () => undefined);
  await once(local, "close");
});

test("a closed forward listens no more and ends its connections", async () => {
  await using fake = await FakeServer.start();
  const arriving = nextSocket(fake);
  const stop = new AbortController();
  const forward = await open(fake).forward(8080, { signal: stop.signal });
  const local = connect(forward.port, forward.host);
  const closed = once(local.on("error", () => undefined), "close");
  const server = (await arriving).accept();
  stop.abort();
  await closed;
  await server.closed;
  const late = connect(forward.port, forward.host);
  const [error] = (await once(late, "error")) as [NodeJS.ErrnoException];
  assert.equal(error.code, "ECONNREFUSED");
});
