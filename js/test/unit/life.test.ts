import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Bothy, BothyError, CloneFailedError, ConflictError, ConnectionError, errorOf, InvalidArgumentError, Sandbox, type SandboxInfo, SandboxPausedError, SnapshotNotFoundError, TimeoutError, UnsupportedError } from "bothy";
import { Transport } from "#internal/transport.js";
import { brokenEvents, bytes, events, FakeServer, json, noContent, problem, sandbox } from "./fake.js";

const base = "/v1/sandboxes/sbx_1";
const snapshot = { id: "snap_1", sandbox_id: "sbx_1", template: "node-22", kind: "memory", size_bytes: 9, created_at: "2026-01-02T03:04:05Z" };

function open(fake: FakeServer): Sandbox {
  const transport = new Transport({ url: fake.url, apiKey: "bothy_test" }, { sleep: async () => undefined });
  return new Sandbox(transport, { id: "sbx_1", state: "running" } as SandboxInfo);
}

test("a sandbox is paused, and resumed by its own id or its snapshot's", async () => {
  await using fake = await FakeServer.start();
  fake
    .on(`POST ${base}/pause`, json({ snapshot_id: "snap_1", snapshot }))
    .on(`POST ${base}/resume`, json(sandbox({ resumed: { snapshot_id: "snap_1", kind: "memory", at: "2026-01-02T03:04:05Z" } })))
    .on("POST /v1/snapshots/snap_1/resume", json(sandbox()))
    .on("POST /v1/snapshots/sbx_1/resume", problem(404, "snapshot_not_found", "there is no snapshot sbx_1"))
    .on("POST /v1/snapshots/lost/resume", problem(404, "snapshot_not_found", "there is no snapshot lost"))
    .on("POST /v1/sandboxes/lost/resume", problem(404, "sandbox_not_found", "there is no sandbox lost"));
  const sbx = open(fake);
  assert.equal(await sbx.pause(), "snap_1");
  assert.equal(sbx.info.state, "paused");
  assert.equal(await sbx.pause({ memory: false, name: "night" }), "snap_1");
  assert.deepEqual(fake.requests(`POST ${base}/pause`).map((seen) => seen.json), [{}, { memory: false, name: "night" }]);
  assert.equal((await sbx.resume()).resumed?.kind, "memory");
  const client = fake.client();
  assert.equal((await Sandbox.resume("snap_1", { client })).id, "sbx_1");
  assert.equal((await Sandbox.resume("sbx_1", { client })).id, "sbx_1");
  assert.equal((await client.snapshots.resume("snap_1")).id, "sbx_1");
  await sbx.resume({ memory: false });
  await Sandbox.resume("sbx_1", { client, memory: false });
  await client.snapshots.resume("snap_1", { memory: false });
  assert.deepEqual(fake.requests(`POST ${base}/resume`).map((seen) => seen.json), [undefined, undefined, { memory: false }, { memory: false }]);
  assert.deepEqual(fake.requests("POST /v1/snapshots/snap_1/resume").map((seen) => seen.json), [undefined, undefined, { memory: false }]);
  await assert.rejects(Sandbox.resume("lost", { client }), (error: BothyError) => {
    assert.ok(error instanceof SnapshotNotFoundError);
    assert.match(error.detail, /neither a snapshot nor a sandbox with the id "lost"/);
    return true;
  });
});

test("the engine is chosen and tells of itself", async () => {
  await using fake = await FakeServer.start();
  fake.on(
    "POST /v1/sandboxes",
    json({ ...sandbox(), engine: "microvm", acceleration: "emulated", kernel: "6.1.0-vm", host_labels: { disk_kind: "fast" } }, 201),
    problem(422, "acceleration_unavailable", "virtual machines would be emulated"),
  );
  const client = fake.client();
  const { info } = await Sandbox.create({ engine: "auto", hostLabels: { diskKind: "fast" }, client });
  assert.deepEqual([info.engine, info.acceleration, info.kernel], ["microvm", "emulated", "6.1.0-vm"]);
  assert.deepEqual(info.hostLabels, { disk_kind: "fast" });
  await assert.rejects(Sandbox.create({ engine: "microvm", requireAcceleration: true, client }), UnsupportedError);
  assert.deepEqual(fake.requests("POST /v1/sandboxes").map((seen) => seen.json), [{ engine: "auto", host_labels: { diskKind: "fast" } }, { engine: "microvm", require_acceleration: true }]);
});

test("snapshots are taken, listed, found, carried elsewhere and deleted", async () => {
  await using fake = await FakeServer.start();
  fake
    .on(`POST ${base}/snapshots`, json(snapshot, 201))
    .on("GET /v1/snapshots", json({ items: [snapshot], next_cursor: "c" }), json({ items: [{ ...snapshot, id: "snap_2" }] }), json({ items: [] }))
    .on("GET /v1/snapshots/snap_1", json(snapshot))
    .on("DELETE /v1/snapshots/snap_1", noContent)
    .on("GET /v1/snapshots/snap_1/changes", json({ items: [{ path: "/workspace/a", change: "added", type: "file", size: 3 }], truncated: true }))
    .on("GET /v1/snapshots/snap_1/export", bytes(Buffer.from("archive")))
    .on("POST /v1/snapshots/import", json({ ...snapshot, id: "snap_3", kind: "files", detail: "the archive is not signed" }, 201));
  const sbx = open(fake);
  const taken = await sbx.snapshot({ name: "before" });
  assert.deepEqual([taken.sandboxId, taken.sizeBytes, taken.createdAt], ["sbx_1", 9, new Date("2026-01-02T03:04:05Z")]);
  assert.deepEqual((await sbx.snapshots().all()).map(({ id }) => id), ["snap_1", "snap_2"]);
  assert.deepEqual(fake.requests("GET /v1/snapshots").map((seen) => Object.fromEntries(seen.query)), [{ sandbox_id: "sbx_1" }, { sandbox_id: "sbx_1", cursor: "c" }]);
  const { snapshots } = fake.client();
  assert.deepEqual((await snapshots.list({ name: "before" })).items, []);
  assert.equal((await snapshots.get("snap_1")).kind, "memory");
  const { items, truncated } = await snapshots.changes("snap_1", "snap_2", { limit: 1 });
  assert.deepEqual([items, truncated], [[{ path: "/workspace/a", change: "added", type: "file", size: 3 }], true]);
  assert.deepEqual(Object.fromEntries(fake.requests("GET /v1/snapshots/snap_1/changes")[0]!.query), { since: "snap_2", limit: "1" });
  const sealed = Buffer.from("öpen sesame €").toString("latin1");
  const archive = await snapshots.export("snap_1", { passphrase: "öpen sesame €" });
  const copy = await snapshots.import(archive, { passphrase: "öpen sesame €", name: "copy" });
  assert.deepEqual([copy.id, copy.kind, copy.detail], ["snap_3", "files", "the archive is not signed"]);
  const [put] = fake.requests("POST /v1/snapshots/import");
  assert.deepEqual([put?.body.toString(), put?.query.get("name"), put?.headers["x-bothy-passphrase"]], ["archive", "copy", sealed]);
  assert.equal(fake.requests("GET /v1/snapshots/snap_1/export")[0]?.headers["x-bothy-passphrase"], sealed);
  await snapshots.delete("snap_1");
});

test("a sandbox is forked and rolled back", async () => {
  await using fake = await FakeServer.start();
  fake
    .on(`POST ${base}/fork`, json({ items: [sandbox({ id: "sbx_2" }), sandbox({ id: "sbx_3" })] }, 201))
    .on(`POST ${base}/rollback`, json(sandbox({ name: "back" })));
  const sbx = open(fake);
  const copies = await sbx.fork(2, { metadata: { runId: "7" }, timeoutSeconds: 60 });
  assert.deepEqual(copies.map((copy) => copy.id), ["sbx_2", "sbx_3"]);
  await sbx.fork();
  assert.deepEqual(fake.requests(`POST ${base}/fork`).map((seen) => seen.json), [{ count: 2, metadata: { runId: "7" }, timeout_seconds: 60 }, { count: 1 }]);
  await sbx.rollback("snap_1");
  assert.equal(sbx.info.name, "back");
  assert.deepEqual(fake.requests(`POST ${base}/rollback`)[0]?.json, { snapshot_id: "snap_1" });
});

test("a template is made of a sandbox", async () => {
  await using fake = await FakeServer.start();
  fake.on(`POST ${base}/template`, json({ version: 1, name: "team/app", tag: "v3", digest: "sha256:02", size_bytes: 5, memory: { snapshot_id: "snap_1", memory_mb: 512 } }, 201));
  const made = await open(fake).createTemplate("team/app:v3", { memory: true, description: "the app" });
  assert.deepEqual([made.tag, made.memory?.snapshotId, made.memory?.memoryMb], ["v3", "snap_1", 512]);
  assert.deepEqual(fake.requests(`POST ${base}/template`)[0]?.json, { name: "team/app:v3", memory: true, description: "the app" });
});

test("a time-out that cannot begin says so", async () => {
  await using fake = await FakeServer.start();
  fake.on(`PATCH ${base}`, json(sandbox({ state: "paused", timeout_seconds: 60 })));
  await assert.rejects(open(fake).setTimeout(60), SandboxPausedError);
  fake.on(`PATCH ${base}`, json(sandbox({ state: "paused", auto_resume: true, timeout_seconds: 60 })));
  assert.equal((await open(fake).setTimeout(60)).timeoutSeconds, 60);
});

test("a live sandbox is changed", async () => {
  await using fake = await FakeServer.start();
  fake.on(`PATCH ${base}`, json(sandbox({ timeout_seconds: 60 })));
  const sbx = open(fake);
  await sbx.setTimeout(60);
  assert.equal(sbx.info.timeoutSeconds, 60);
  await sbx.setNetwork({ allowDomains: ["*.example.org"], allowCidrs: ["192.0.2.0/24"] });
  await sbx.update({ onTimeout: "pause", idleSeconds: 30, metadata: { aB: "c" } });
  await sbx.update({ checkpointSeconds: 30, onHostLoss: "resume" });
  assert.deepEqual(fake.seen.map((seen) => seen.json), [
    { timeout_seconds: 60 },
    { network: { allow_domains: ["*.example.org"], allow_cidrs: ["192.0.2.0/24"] } },
    { on_timeout: "pause", idle_seconds: 30, metadata: { aB: "c" } },
    { checkpoint_seconds: 30, on_host_loss: "resume" },
  ]);
});

test("a sandbox that has failed is restarted", async () => {
  await using fake = await FakeServer.start();
  fake.on(`POST ${base}/restart`, json(sandbox({ host_loss: { at: "2026-01-02T03:04:05Z", snapshot_id: "snap_1", age_seconds: 41 } })));
  const sbx = open(fake);
  await sbx.restart();
  assert.deepEqual([sbx.info.hostLoss?.snapshotId, sbx.info.hostLoss?.ageSeconds], ["snap_1", 41]);
  assert.equal(sbx.info.hostLoss?.at.getTime(), Date.UTC(2026, 0, 2, 3, 4, 5));
});

test("what a sandbox uses, tries, prints and shows", async () => {
  await using fake = await FakeServer.start();
  const decision = { time: "2026-01-02T03:04:05Z", protocol: "dns", name: "example.org", allowed: false, reason: "off", bytes_out: 1, bytes_in: 2 };
  fake
    .on(`GET ${base}/metrics`, json({ cpu_seconds: 1.5, memory_bytes: 7, held_awake_by: ["command"] }))
    .on(`GET ${base}/network/log`, json({ items: [decision] }), events(decision))
    .on(`GET ${base}/logs`, json({ items: [{ pid: 7, stream: "stdout", data: "hi", offset: 0 }], truncated: false }))
    .on(`POST ${base}/links`, json({ url: "http://8080-sbx1.localhost:7700/?bothy_link=x", expires_at: "2026-01-02T03:04:05Z" }, 201))
    .on(`GET ${base}/links`, json({ items: [{ id: "lnk_1", port: 8080, kind: "webhook", token_id: "tok_1", expires_at: "2026-01-02T03:04:05Z" }] }))
    .on(`DELETE ${base}/links/lnk_1`, json(undefined, 204))
    .on("GET /v1/limits", json({ plan: "free", sandboxes: { limit: null, used: 1 }, sandbox: { memory_mb: 512 } }))
    .on(
      "GET /v1/usage",
      json({ from: "1970-01-01T00:00:00Z", to: "1970-01-02T00:00:00Z", as_of: "1970-01-01T12:00:00Z", items: [{ sandbox: "a", vcpu_seconds: 1.5, labels: { a_b: "red" } }], next_cursor: "1" }),
      json({ from: "1970-01-01T00:00:00Z", to: "1970-01-02T00:00:00Z", as_of: "1970-01-01T12:00:00Z", items: [{ sandbox: "b", cost: 2 }], total: { cost: 3 } }),
    );
  const sbx = open(fake);
  fake.on(`GET ${base}/metrics/history`, json({ items: [{ cpu_seconds: 1 }, { cpu_seconds: 2 }] }));
  assert.deepEqual(await sbx.metricsHistory({ from: new Date(0) }), [{ cpuSeconds: 1 }, { cpuSeconds: 2 }]);
  assert.equal(fake.requests(`GET ${base}/metrics/history`)[0]?.query.get("from"), "1970-01-01T00:00:00.000Z");
  assert.deepEqual(await sbx.metrics(), { cpuSeconds: 1.5, memoryBytes: 7, heldAwakeBy: ["command"] });
  const since = new Date(0);
  const [line] = await sbx.networkLog({ since });
  assert.deepEqual([line?.bytesOut, line?.time], [1, new Date("2026-01-02T03:04:05Z")]);
  for await (const seen of sbx.followNetworkLog({ since })) assert.equal(seen.name, "example.org");
  assert.deepEqual(fake.requests(`GET ${base}/network/log`).map((seen) => [seen.query.get("since"), seen.headers.accept]), [
    ["1970-01-01T00:00:00.000Z", "*/*"],
    ["1970-01-01T00:00:00.000Z", "text/event-stream"],
  ]);
  assert.deepEqual(await sbx.logs({ pid: 7 }), { items: [{ pid: 7, stream: "stdout", data: "hi", offset: 0 }], truncated: false });
  assert.equal(await sbx.url(8080, { expiresSeconds: 60 }), "http://8080-sbx1.localhost:7700/?bothy_link=x");
  assert.deepEqual(fake.requests(`POST ${base}/links`)[0]?.json, { port: 8080, expires_seconds: 60 });
  await sbx.createLink(8080, { kind: "webhook" });
  assert.deepEqual(fake.requests(`POST ${base}/links`)[1]?.json, { port: 8080, kind: "webhook" });
  const end = await sbx.endpoint(8080);
  assert.equal(end.url, `${fake.url}${base}/ports/8080/`);
  assert.equal(end.webSocketUrl, end.url.replace("http:", "ws:"));
  assert.deepEqual(end.headers, { Authorization: "Bearer bothy_test" });
  for (const port of [0, 65536, 1.5]) await assert.rejects(sbx.endpoint(port), InvalidArgumentError);
  const [link] = await sbx.links();
  assert.deepEqual([link?.id, link?.kind, link?.tokenId, link?.expiresAt], ["lnk_1", "webhook", "tok_1", new Date("2026-01-02T03:04:05Z")]);
  await sbx.deleteLink("lnk_1");
  assert.equal(fake.requests(`DELETE ${base}/links/lnk_1`).length, 1);
  assert.deepEqual((await Sandbox.limits({ client: fake.client() })).sandboxes, { limit: null, used: 1 });
  const used = await Sandbox.usage({ from: since, groupBy: ["sandbox", "label:a_b"], client: fake.client() });
  assert.deepEqual(used.items, [{ sandbox: "a", vcpuSeconds: 1.5, labels: { a_b: "red" } }, { sandbox: "b", cost: 2 }]);
  assert.deepEqual([used.total.cost, used.to, used.asOf.getUTCHours()], [3, new Date("1970-01-02T00:00:00Z"), 12]);
  const asked = fake.requests("GET /v1/usage").map((seen) => Object.fromEntries(seen.query));
  assert.deepEqual(asked[0], { from: "1970-01-01T00:00:00.000Z", group_by: "sandbox,label:a_b", limit: "10000" });
  assert.deepEqual([asked[1]?.["cursor"], asked[1]?.["to"]], ["1", "1970-01-02T00:00:00.000Z"]);
});

test("events are followed over broken connections, each once", async () => {
  await using fake = await FakeServer.start();
  const event = (id: number, sandbox_id = "sbx_1"): object => ({ id, time: "2026-01-02T03:04:05Z", type: "sandbox.updated", sandbox_id, data: { some_key: "x" } });
  fake.on("GET /v1/events", brokenEvents(event(1), event(2, "sbx_2")), events(event(3)), events(event(4)));
  const ids: number[] = [];
  for await (const seen of open(fake).events()) {
    assert.deepEqual(seen.data, { some_key: "x" });
    ids.push(seen.id);
    if (seen.id === 4) break;
  }
  assert.deepEqual(ids, [1, 3, 4]);
  assert.deepEqual(fake.seen.map((seen) => seen.query.get("since")), [null, "2", "3"]);
});

test("events that have happened are listed, page by page", async () => {
  await using fake = await FakeServer.start();
  const event = (id: number, sandbox_id: string): object => ({ id, time: "2026-01-02T03:04:05Z", type: "sandbox.updated", sandbox_id });
  fake.on("GET /v1/events", json({ items: [event(5, "sbx_1"), event(6, "sbx_2")], next_cursor: "6" }), json({ items: [event(7, "sbx_1")] }));
  const ids: number[] = [];
  for await (const seen of open(fake).events({ since: 4, follow: false })) ids.push(seen.id);
  assert.deepEqual(ids, [5, 7]);
  assert.deepEqual(fake.seen.map((seen) => seen.query.get("since")), ["4", "6"]);
  assert.deepEqual(fake.seen.map((seen) => seen.query.get("sandbox_id")), ["sbx_1", "sbx_1"]);
});

test("what happens from now on, and what all sandboxes use, is asked of the client", async () => {
  await using fake = await FakeServer.start();
  fake
    .on("GET /v1/events", json({ items: [], next_cursor: "41" }))
    .on("GET /v1/metrics", json({ items: [{ sandbox_id: "sbx_1", cpu_used: 0.5, time: "2026-01-02T03:04:05Z", memory_bytes: 7 }] }));
  assert.equal(await fake.client().lastEvent(), 41);
  assert.equal(fake.seen[0]?.query.get("new"), "true");
  const [used] = await fake.client().metrics();
  assert.deepEqual([used?.sandboxId, used?.cpuUsed, used?.memoryBytes, used?.time], ["sbx_1", 0.5, 7, new Date("2026-01-02T03:04:05Z")]);
});

test("a template is built with its progress, and a build that fails is an error", async () => {
  await using fake = await FakeServer.start();
  const built = { version: 1, name: "mine", digest: "sha256:x", size_bytes: 5, created_at: "2026-01-02T03:04:05Z", packages: { "left_pad": "1" } };
  fake
    .on("POST /v1/templates", events({ step: "pull" }, { step: "done", percent: 100, template: built }), events({ step: "pull", error: "no such image" }), events({ step: "pull" }))
    .on("GET /v1/templates", json({ items: [built] }))
    .on("GET /v1/templates/mine", json(built))
    .on("POST /v1/templates/mine/tags", json({ items: [{ ...built, tag: "v3" }, built] }))
    .on("GET /v1/sboms/mine", json({ spec_version: "x" }))
    .on("GET /v1/provenance/mine", json({ predicate_type: "x" }))
    .on("POST /v1/templates/mine/push", json({ reference: "r.example.org/a@sha256:x", digest: "sha256:x", size_bytes: 7 }))
    .on("DELETE /v1/templates/mine", noContent);
  const { templates } = fake.client();
  const steps: string[] = [];
  const template = await templates.build({ name: "mine", image: "alpine" }, { onProgress: (event) => steps.push(event.step) });
  assert.deepEqual([template.sizeBytes, template.packages, steps], [5, { left_pad: "1" }, ["pull", "done"]]);
  await assert.rejects(templates.build({ name: "mine" }), /no such image/);
  await assert.rejects(templates.build({ name: "mine" }), ConnectionError);
  assert.equal((await templates.list())[0]?.name, "mine");
  assert.equal((await templates.get("mine")).name, "mine");
  assert.deepEqual((await templates.tag("mine", ["v3", "latest"])).map((t) => t.tag), ["v3", undefined]);
  assert.deepEqual(fake.seen.at(-1)?.json, { tags: ["v3", "latest"] });
  assert.deepEqual(await templates.sbom("mine", "cyclonedx"), { spec_version: "x" });
  assert.equal(fake.seen.at(-1)?.query.get("format"), "cyclonedx");
  assert.deepEqual(await templates.provenance("mine"), { predicate_type: "x" });
  assert.equal((await templates.push("mine", "r.example.org/a:1")).sizeBytes, 7);
  assert.deepEqual(fake.seen.at(-1)?.json, { reference: "r.example.org/a:1" });
  await templates.delete("mine");
});

test("keys are made, listed and revoked", async () => {
  await using fake = await FakeServer.start();
  const token = { id: "tok_1", project: "default", scopes: ["sandboxes:read"], created_at: "2026-01-02T03:04:05Z" };
  fake
    .on("POST /v1/tokens", json({ ...token, key: "bothy_new" }, 201))
    .on("GET /v1/tokens", json({ items: [token] }))
    .on("DELETE /v1/tokens/tok_1", noContent);
  const { tokens } = new Bothy({ url: fake.url, apiKey: "bothy_admin" });
  assert.equal((await tokens.create({ scopes: ["sandboxes:read"], expiresAt: new Date(0) })).key, "bothy_new");
  assert.deepEqual(fake.seen[0]?.json, { scopes: ["sandboxes:read"], expires_at: "1970-01-01T00:00:00.000Z" });
  assert.equal((await tokens.list())[0]?.key, undefined);
  await tokens.delete("tok_1");
});

test("projects are made, found and changed", async () => {
  await using fake = await FakeServer.start();
  const project = { id: "research", plan: "pro", created_at: "2026-01-02T03:04:05Z", budget: { limit: 250, used: 1, currency: "EUR", resets_at: "2026-02-01T00:00:00Z" } };
  fake
    .on("POST /v1/projects", json(project, 201))
    .on("GET /v1/projects", json({ items: [project] }))
    .on("GET /v1/projects/research", json(project))
    .on("PATCH /v1/projects/research", json({ ...project, budget: undefined }));
  const { projects } = fake.client();
  assert.equal((await projects.create("research", { plan: "pro", budget: 250 })).id, "research");
  assert.deepEqual(fake.seen[0]?.json, { id: "research", plan: "pro", budget: 250 });
  assert.deepEqual((await projects.list()).map((p) => p.budget?.resetsAt), [new Date("2026-02-01T00:00:00Z")]);
  assert.equal((await projects.get("research")).plan, "pro");
  assert.equal((await projects.update("research", { budget: 0 })).budget, undefined);
  assert.deepEqual(fake.seen[3]?.json, { budget: 0 });
});

test("environments of managed agents are attached and detached", async () => {
  await using fake = await FakeServer.start();
  const wire = {
    id: "agt_1", environment: "env_1", url: "https://a.example.org", state: "working", max_sessions: 3, created_at: "2026-01-02T03:04:05Z",
    sandbox: { template: "node-22", memory_mb: 1024 }, sessions: [{ id: "sesn_1", sandbox_id: "sbx_1", working: true }],
  };
  fake
    .on("POST /v1/agents", json(wire, 201))
    .on("GET /v1/agents", json({ items: [wire] }))
    .on("GET /v1/agents/env_1", json(wire))
    .on("DELETE /v1/agents/agt_1", noContent);
  const { agents } = fake.client();
  const tools = [{ name: "shout", command: "tr a-z A-Z" }];
  const made = await agents.attach({ environment: "env_1", key: "the-key", tools, maxSessions: 3, sandbox: { template: "node-22", memoryMb: 1024, env: { aB: "c" } } });
  assert.equal(made.sessions[0]?.sandboxId, "sbx_1");
  assert.equal(made.sandbox.memoryMb, 1024);
  assert.deepEqual(fake.seen[0]?.json, { environment: "env_1", key: "the-key", tools, max_sessions: 3, sandbox: { template: "node-22", memory_mb: 1024, env: { aB: "c" } } });
  assert.deepEqual((await agents.list()).map((a) => a.createdAt), [new Date("2026-01-02T03:04:05Z")]);
  assert.equal((await agents.get("env_1")).maxSessions, 3);
  await agents.detach("agt_1");
  assert.equal(fake.seen[3]?.method, "DELETE");
});

test("webhooks are made, changed, tried and deleted", async () => {
  await using fake = await FakeServer.start();
  const hook = { id: "whk_1", url: "https://a.example.org", enabled: true, format: "standard", created_at: "2026-01-02T03:04:05Z", last_event_id: 7 };
  fake
    .on("POST /v1/webhooks", json({ ...hook, secret: "whsec_x" }, 201))
    .on("GET /v1/webhooks", json({ items: [hook] }))
    .on("GET /v1/webhooks/whk_1", json({ ...hook, failing_since: "2026-02-01T00:00:00Z" }))
    .on("PATCH /v1/webhooks/whk_1", json(hook))
    .on("POST /v1/webhooks/whk_1/test", json({ error: "nobody", milliseconds: 2 }))
    .on("DELETE /v1/webhooks/whk_1", noContent);
  const { webhooks } = fake.client();
  assert.equal((await webhooks.create("https://a.example.org", { events: ["sandbox.ended"] })).secret, "whsec_x");
  assert.deepEqual(fake.seen[0]?.json, { url: "https://a.example.org", events: ["sandbox.ended"] });
  assert.equal((await webhooks.list())[0]?.lastEventId, 7);
  assert.deepEqual((await webhooks.get("whk_1")).failingSince, new Date("2026-02-01T00:00:00Z"));
  await webhooks.update("whk_1", { enabled: false });
  assert.deepEqual(fake.seen[3]?.json, { enabled: false });
  assert.equal((await webhooks.test("whk_1")).error, "nobody");
  await webhooks.delete("whk_1");
  assert.equal(fake.seen[5]?.method, "DELETE");
});

test("the audit is read by page, or whole, and checked", async () => {
  await using fake = await FakeServer.start();
  const record = (id: number): object => ({ id, time: "2026-01-02T03:04:05Z", action: "exec", token_id: "tok_1", status: 200, duration_ms: 7 });
  fake
    .on("GET /v1/audit", json({ items: [record(3), record(2)], next_cursor: "2" }), json({ items: [record(1)] }))
    .on("GET /v1/audit/verify", json({ ok: true, records: 3, first: 1, last: 3, head: "ab" }));
  const bothy = fake.client();
  const since = new Date(0);
  const all = await bothy.audit({ since, until: new Date(1000), action: "exec", token: "tok_1", sandbox: "sbx_1", project: "p", refused: true, limit: 2 }).all();
  assert.deepEqual(all.map((r) => r.id), [3, 2, 1]);
  assert.deepEqual(all[0], { id: 3, time: new Date("2026-01-02T03:04:05Z"), action: "exec", tokenId: "tok_1", status: 200, durationMs: 7 });
  const filter = { since: "1970-01-01T00:00:00.000Z", until: "1970-01-01T00:00:01.000Z", action: "exec", token: "tok_1", sandbox: "sbx_1", project: "p", refused: "true", limit: "2" };
  assert.deepEqual(fake.requests("GET /v1/audit").map((seen) => Object.fromEntries(seen.query)), [filter, { ...filter, cursor: "2" }]);
  const page = await bothy.audit({ order: "oldest", cursor: 7 });
  assert.deepEqual([page.items.length, page.nextCursor], [1, undefined]);
  assert.deepEqual(Object.fromEntries(fake.requests("GET /v1/audit")[2]?.query ?? []), { order: "oldest", cursor: "7" });
  assert.equal((await bothy.checkAudit()).ok, true);
  assert.equal((await bothy.checkAudit({ at: 2, head: "cd" })).head, "ab");
  assert.deepEqual(fake.requests("GET /v1/audit/verify").map((seen) => Object.fromEntries(seen.query)), [{}, { at: "2", head: "cd" }]);
});

test("a fleet is made once, and ended", async () => {
  await using fake = await FakeServer.start();
  const client = fake.client();
  const make = (count: number, concurrency?: number) => Sandbox.createMany(count, { tag: "run 1", concurrency, template: "node-22", metadata: { run: "1" }, client });
  const ids = (fleet: (Sandbox | BothyError)[]) => fleet.map((one) => (one instanceof Sandbox ? one.id : one.message));
  const first = ids(await make(3));
  const again = ids(await make(5, 1));
  assert.deepEqual(again.slice(0, 3), first);
  assert.equal(new Set(again).size, 5);
  const keys = new Set(fake.requests("POST /v1/sandboxes").map((seen) => seen.headers["idempotency-key"]));
  assert.deepEqual([...keys].sort(), [0, 1, 2, 3, 4].map((index) => `tag-run%201%2F${index}`));
  const refused = await Sandbox.createMany(2, { memoryMb: 1, client });
  assert.deepEqual(refused.map((one) => one.constructor.name), ["InvalidArgumentError", "InvalidArgumentError"]);
  const one = await Sandbox.create({ template: "node-22", tag: "a", client });
  assert.equal((await Sandbox.create({ template: "node-22", tag: "a", client })).id, one.id);
  assert.deepEqual(ids(await one.fork(2, { tag: "b" })), ids(await one.fork(2, { tag: "b" })));
  const ended = await Sandbox.terminateMany({ metadata: { run: "1" } }, { client });
  assert.deepEqual([...ended].sort(), again.map((id) => [id, undefined]).sort());
  const some = await client.sandboxes.terminateMany({ sandboxes: [one, "lost"] });
  assert.equal(some.get(one.id), undefined);
  assert.equal(some.get("lost")?.code, "sandbox_not_found");
  await assert.rejects(Sandbox.terminateMany({ metadata: {} }, { client }), InvalidArgumentError);
});

test("a sandbox is waited for, and a repository asked for", async () => {
  await using fake = await FakeServer.start();
  const client = fake.client();
  const sbx = await Sandbox.create({ client });
  const last = () => fake.seen.at(-1)?.json;
  await sbx.waitForPort(8000, { timeoutSeconds: 5 });
  assert.deepEqual(last(), { port: 8000, timeout_seconds: 5 });
  assert.equal(await sbx.waitForUrl("http://localhost/", { status: 200, process: 7 }), 200);
  assert.deepEqual(last(), { url: "http://localhost/", status: 200, pid: 7, timeout_seconds: 60 });
  assert.equal(await sbx.waitForLog("line", { path: "a.log", user: "root" }), "the line");
  assert.deepEqual(last(), { log: "line", path: "a.log", user: "root", timeout_seconds: 60 });
  await assert.rejects(sbx.waitForPort(9, { timeoutSeconds: 0.5 }), TimeoutError);
  const process = await sbx.spawn("cat");
  await process.write("one\nready\n");
  assert.equal(await sbx.waitForLog("ready", { process }), "ready");
  await process.closeStdin();
  assert.equal(await sbx.waitForExit(process), 0);
  await assert.rejects(sbx.waitForLog("never", { process }), ConflictError);
  fake.on("POST /v1/sandboxes", problem(422, "clone_failed", "the repository was not cloned: fatal: no"));
  await assert.rejects(Sandbox.create({ repo: "https://git.example.org/a#main", repoToken: "t", client }), CloneFailedError);
  assert.deepEqual(last(), { repo: "https://git.example.org/a#main", repo_token: "t" });
});

test("each code says whose fault it is", async (t) => {
  const faults = new URL("../../../../test/vectors/testdata/faults.json", import.meta.url);
  if (!existsSync(faults)) return t.skip("not in a clone of the whole repository");
  const table = JSON.parse(readFileSync(faults, "utf8")) as Record<string, [boolean, boolean]>;
  for (const [code, expected] of Object.entries(table)) {
    const error = errorOf({ code, detail: "d", status: 418 });
    assert.deepEqual([error.infrastructure, error.retryable], expected, code);
  }
  assert.ok(errorOf({ code: "comet", detail: "d", status: 502 }).infrastructure);
  assert.ok(errorOf({ code: "conflict", detail: "d", retryAfterSeconds: 1 }).retryable);
});
