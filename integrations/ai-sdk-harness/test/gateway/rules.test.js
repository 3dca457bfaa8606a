// Wants a server whose gateway may reach this host: test/integrations/harness starts one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { after, before, test } from "node:test";
import { bothySandbox } from "bothy-ai-sdk-harness";

const { TEST_HOST: host, TEST_CERT: cert, TEST_KEY: key } = process.env;
const credential = "Bearer the-real-credential-0123456789";
const placeholder = `Bearer aisdkhc_${"x".repeat(43)}`;

/** The headers of the requests that have arrived. */
const seen = [];
const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
  seen.push(request.headers);
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(request.headers));
});

let session;
let port;
before(async () => {
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  ({ port } = server.address());
  session = await bothySandbox({ network: { mode: "restricted", allowDomains: [host], allowPorts: [port] } }).createSession();
});
after(async () => {
  await session?.destroy();
  server.close();
});

/** Sends a request from the sandbox, and returns what came back. */
const request = (headers) =>
  session.run({
    command: `node -e 'fetch(process.env.URL, { headers: JSON.parse(process.env.HEADERS) }).then((r) => r.text()).then(console.log, () => process.exit(9))'`,
    env: { URL: `https://${host}:${port}/v1/messages`, HEADERS: JSON.stringify(headers) },
  });

const rule = { match: { host, headers: [{ key: { exact: "authorization" }, value: { exact: placeholder } }] }, transform: { headers: { Authorization: credential, "X-Team": "the-team" } } };

test("a credential is set outside, and does not come back", async () => {
  await session.addRequestTransformations([rule]);
  const { exitCode, stdout } = await request({ authorization: placeholder });
  assert.equal(exitCode, 0);
  assert.deepEqual([seen.at(-1).authorization, seen.at(-1)["x-team"]], [credential, "the-team"]);
  assert.ok(stdout.includes("authorization") && !stdout.includes("the-real-credential"), stdout);
  const inside = await session.run({ command: "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'" });
  assert.ok(!inside.stdout.includes("the-real-credential"));
});

test("the policy decides whether a host is reached, and the rules stay over its changes", async () => {
  await session.setNetworkPolicy({ mode: "deny-all" });
  assert.equal((await request({})).exitCode, 9);
  await session.setNetworkPolicy({ mode: "custom", allowedHosts: ["other.example.org"] });
  assert.equal((await request({})).exitCode, 9);
  await session.setNetworkPolicy({ mode: "custom", allowedHosts: ["*.example.org"] });
  assert.equal((await request({})).exitCode, 0);
  assert.equal(seen.at(-1).authorization, credential);
});

test("a value that is renewed replaces the one before, and rules that are gone do nothing", async () => {
  await session.addRequestTransformations([{ ...rule, transform: { headers: { authorization: "Bearer renewed-credential" } } }]);
  await request({ authorization: placeholder });
  assert.deepEqual([seen.at(-1).authorization, seen.at(-1)["x-team"]], ["Bearer renewed-credential", "the-team"]);
  await session.setRequestTransformations([]);
  assert.equal((await request({ authorization: placeholder })).exitCode, 0);
  assert.deepEqual([seen.at(-1).authorization, seen.at(-1)["x-team"]], [placeholder, undefined]);
});
