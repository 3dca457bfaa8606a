import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents, type ServerEvent } from "#internal/sse.js";
import { fromWire, toQuery, toWire } from "#internal/wire.js";

test("keys become snake case on the wire, except the user's own", () => {
  const value = {
    memoryMb: 512,
    env: { someKey: "someValue" },
    metadata: { teamName: "red" },
    network: { mode: "restricted", allowCidrs: ["192.0.2.0/24"] },
    secrets: [{ name: "apiKey", value: "x" }],
    expiresAt: new Date(0),
    left: undefined,
  };
  assert.deepEqual(toWire(value), {
    memory_mb: 512,
    env: { someKey: "someValue" },
    metadata: { teamName: "red" },
    network: { mode: "restricted", allow_cidrs: ["192.0.2.0/24"] },
    secrets: [{ name: "apiKey", value: "x" }],
    expires_at: "1970-01-01T00:00:00.000Z",
  });
});

test("keys become camel case from the wire, and times become dates", () => {
  const wire = { items: [{ memory_mb: 1, created_at: "2026-01-02T03:04:05.123456Z", env: { a_b: "c_d" }, ended: { at: "2026-01-02T03:04:05Z" }, p50_ms: 1, name: "not_at" }] };
  assert.deepEqual(fromWire(wire), {
    items: [{ memoryMb: 1, createdAt: new Date("2026-01-02T03:04:05.123Z"), env: { a_b: "c_d" }, ended: { at: new Date("2026-01-02T03:04:05Z") }, p50Ms: 1, name: "not_at" }],
  });
});

test("what goes out comes back", () => {
  const value = { timeoutSeconds: 0, onTimeout: "pause", allowPorts: [443], nested: [{ deepKey: null }] };
  assert.deepEqual(fromWire(toWire(value)), value);
});

test("a query leaves out what is not set and joins maps with a dot", () => {
  assert.equal(toQuery({}), "");
  assert.equal(toQuery({ path: "/a b&c", user: undefined, depth: 2, recursive: true }), "?path=%2Fa+b%26c&depth=2&recursive=true");
  assert.equal(toQuery({ modifiedAt: new Date(0), metadata: { "team name": "r/d" } }), "?modified_at=1970-01-01T00%3A00%3A00.000Z&metadata.team+name=r%2Fd");
});

async function parse(...chunks: (string | Uint8Array)[]): Promise<ServerEvent[]> {
  async function* source(): AsyncGenerator<Uint8Array> {
    for (const chunk of chunks) yield typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk;
  }
  const events: ServerEvent[] = [];
  for await (const event of readEvents(source())) events.push(event);
  return events;
}

test("events are read however they are cut", async () => {
  const text = ':comment\n\nid: 1\nevent: note\ndata: {"a":\ndata:1}\n\n:\n\ndata: zwölf €\r\n\r\ndata:last\r\rdata: unfinished';
  const expected = [{ id: "1", event: "note", data: '{"a":\n1}' }, { data: "zwölf €" }, { data: "last" }];
  assert.deepEqual(await parse(text), expected);
  const bytes = new TextEncoder().encode(text);
  assert.deepEqual(await parse(...Array.from(bytes, (byte) => Uint8Array.of(byte))), expected);
  for (let cut = 1; cut < bytes.length; cut++) assert.deepEqual(await parse(bytes.subarray(0, cut), bytes.subarray(cut)), expected);
});

test("fields without a value and unknown fields do no harm", async () => {
  assert.deepEqual(await parse("data\nretry: 5\nfoo: bar\n\n"), [{ data: "" }]);
  assert.deepEqual(await parse("event: x\n\n"), []);
});
