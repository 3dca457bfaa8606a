import assert from "node:assert/strict";
import { get } from "node:http";
import { test } from "node:test";
import { Sandbox } from "bothy";
import { template, until } from "./setup.js";

const server = ["python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1"]; // Not even its own network sees it.

async function serving(sbx: Sandbox): Promise<void> {
  await sbx.files.write("hello.txt", "hello from inside");
  await sbx.spawn(server);
  await until("the server listens", async () => (await sbx.exec("exec 3<>/dev/tcp/127.0.0.1/8000")).ok);
}

/** Opens an address at which fetch would look up a name that only browsers know. */
function open(url: string, cookie = ""): Promise<{ status: number; cookie: string; location: string; body: string }> {
  const { host, port, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port, path: pathname + search, headers: { Host: host, Cookie: cookie } }, async (response) => {
      let body = "";
      for await (const chunk of response.setEncoding("utf8")) body += chunk as string;
      const [set = ""] = response.headers["set-cookie"] ?? [];
      resolve({ status: response.statusCode ?? 0, cookie: set.split(";")[0] ?? "", location: response.headers.location ?? "", body });
    }).on("error", reject);
  });
}

test("a forwarded port leads to a server inside, many connections at once", async () => {
  await using sbx = await Sandbox.create({ template });
  await serving(sbx);
  await using forward = await sbx.forward(8000);
  const answers = await Promise.all(Array.from({ length: 10 }, async () => (await fetch(`${forward.url}/hello.txt`)).text()));
  assert.deepEqual(answers, Array(10).fill("hello from inside"));
  await sbx.exec("head -c 5000000 /dev/urandom > big && sha256sum big > sum");
  const big = await (await fetch(`${forward.url}/big`)).arrayBuffer();
  const digest = Buffer.from(await crypto.subtle.digest("SHA-256", big)).toString("hex");
  assert.equal(digest, (await sbx.files.read("sum")).split(" ")[0]);
});

test("a port where nobody listens refuses, and the forward goes on", async () => {
  await using sbx = await Sandbox.create({ template });
  await using forward = await sbx.forward(8000);
  await assert.rejects(fetch(forward.url));
  await serving(sbx);
  assert.equal(await (await fetch(`${forward.url}/hello.txt`)).text(), "hello from inside");
});

test("an endpoint is reached with its headers, and not without", async () => {
  await using sbx = await Sandbox.create({ template });
  await serving(sbx);
  const { url, webSocketUrl, headers } = await sbx.endpoint(8000);
  assert.equal(await (await fetch(`${url}hello.txt`, { headers })).text(), "hello from inside");
  assert.equal((await fetch(`${url}hello.txt`)).status, 401);
  assert.equal(new URL(webSocketUrl).protocol, "ws:");
});

test("a link shows a server inside to whoever has it", async () => {
  await using sbx = await Sandbox.create({ template });
  await serving(sbx);
  const link = new URL(await sbx.url(8000, { expiresSeconds: 60 }));
  const entered = await open(link.href.replace("/?", "/hello.txt?"));
  assert.equal(entered.status, 303);
  assert.deepEqual(await open(new URL(entered.location, link).href, entered.cookie).then(({ status, body }) => [status, body]), [200, "hello from inside"]);
  assert.equal((await open(`${link.origin}/hello.txt`)).status, 401);
});

test("nothing leaves a sandbox by default, and the log says what was tried", async () => {
  await using sbx = await Sandbox.create({ template });
  const result = await sbx.exec("timeout 10 bash -c 'exec 3<>/dev/tcp/192.0.2.1/443'");
  assert.ok(!result.ok);
  const log = await sbx.networkLog();
  const line = log.find((decision) => decision.address === "192.0.2.1");
  assert.ok(line, `192.0.2.1 is not in the log: ${JSON.stringify(log)}`);
  assert.deepEqual([line.protocol, line.port, line.allowed], ["tcp", 443, false]);
  assert.ok(line.reason);
  assert.ok(line.time instanceof Date);
});

test("the network log can be followed", async () => {
  await using sbx = await Sandbox.create({ template });
  const trying = sbx.exec("timeout 10 bash -c 'exec 3<>/dev/tcp/192.0.2.7/443'");
  for await (const decision of sbx.followNetworkLog()) if (decision.address === "192.0.2.7") break;
  await trying;
});

test("a sandbox says what it uses and what it has printed", async () => {
  await using sbx = await Sandbox.create({ template });
  const { pid } = await sbx.exec("echo one; echo two >&2");
  await sbx.exec("echo three");
  const metrics = await sbx.metrics();
  assert.ok(metrics.cpuSeconds > 0 && metrics.memoryBytes > 0 && metrics.memoryBytes < metrics.memoryLimitBytes, JSON.stringify(metrics));
  assert.equal(metrics.egressBytes, 0);
  const { items } = await sbx.logs();
  assert.equal(items.filter(({ stream }) => stream === "stdout").map(({ data }) => data).join(""), "one\nthree\n");
  assert.deepEqual([...new Set((await sbx.logs({ pid })).items.map((entry) => entry.pid))], [pid]);
});

test("the limits of the project are told", async () => {
  await using sbx = await Sandbox.create({ template });
  const limits = await Sandbox.limits();
  assert.ok(limits.sandboxes.used >= 1, sbx.id);
  assert.ok(limits.sandbox.memoryMb >= 512);
});
