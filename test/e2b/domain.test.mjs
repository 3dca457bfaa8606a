// E2B's SDK for JavaScript with a domain and TLS, against a server of this tree.
import assert from "node:assert/strict";
import { appendFileSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { connect } from "node:http2";
import { createServer } from "node:https";
import { test } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";

// name lets the names of a sandbox's ports lead to this host.
function name(sandbox, ...ports) {
  for (const port of ports) appendFileSync(process.env.HOSTS, `127.0.0.1 ${sandbox.getHost(port).split(":")[0]}\n`);
}

test("by host names", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  try {
    name(sandbox, 49983, 49999, 8000);
    assert.equal((await sandbox.commands.run("echo said")).stdout, "said\n");
    await sandbox.files.write("index.html", "page");
    assert.equal((await sandbox.runCode("6 * 7")).text, "42");
    assert.equal(await (await fetch(await sandbox.downloadUrl("index.html"))).text(), "page");
    await sandbox.commands.run("python3 -m http.server 8000", { background: true });
    let res;
    do res = await fetch(`https://${sandbox.getHost(8000)}/index.html`);
    while (res.status === 502);
    assert.equal(await res.text(), "page");
  } finally {
    await sandbox.kill();
  }
});

test("HTTP/2", async (t) => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  t.after(() => sandbox.kill());
  name(sandbox, 49983);
  const ask = async (host, headers) => {
    const session = connect(`https://${host}`, { ca: readFileSync(process.env.NODE_EXTRA_CA_CERTS) });
    try {
      const stream = session.request({ ":path": headers.path, ...headers.more });
      const [answer] = await once(stream, "response");
      stream.resume();
      return [session.alpnProtocol, answer[":status"]];
    } finally {
      session.close();
    }
  };
  const port = process.env.E2B_DOMAIN.split(":")[1];
  const key = { "x-api-key": process.env.E2B_API_KEY };
  assert.deepEqual(await ask(`api.boxes.test:${port}`, { path: "/sandboxes", more: key }), ["h2", 200]);
  assert.deepEqual(await ask(sandbox.getHost(49983), { path: "/health" }), ["h2", 401]);
});

// A server of the host that notes what it is asked with.
async function echo(t) {
  const address = `127.${1 + (process.pid % 250)}.${1 + ((process.pid >> 8) % 250)}.1`;
  const asked = [];
  const files = { cert: readFileSync(process.env.NODE_EXTRA_CA_CERTS), key: readFileSync(process.env.KEY) };
  const server = createServer(files, (req, res) => {
    asked.push(req.headers);
    res.end(`stage ${req.headers["x-stage"]}, ${req.headers.authorization}`);
  });
  await new Promise((listening) => server.listen(443, address, listening));
  t.after(() => server.close());
  appendFileSync(process.env.HOSTS, `${address} echo.boxes.test\n`);
  return asked;
}

test("rules set headers", async (t) => {
  const asked = await echo(t);
  const rules = { "echo.boxes.test": [{ transform: { headers: { Authorization: "Bearer of-the-rule", "X-Stage": "production" } } }] };
  const only = { allowOut: ["echo.boxes.test"], denyOut: ["0.0.0.0/0"] };
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, network: { ...only, rules } });
  t.after(() => sandbox.kill());
  const ask = async (of, option = "--show-error") => {
    name(of, 49983);
    const { stdout } = await of.commands.run(`curl --silent ${option} --header 'Authorization: mine' https://echo.boxes.test/`);
    return { ...asked.at(-1), stdout };
  };
  const got = await ask(sandbox);
  assert.deepEqual([got.authorization, got["x-stage"]], ["Bearer of-the-rule", "production"]);
  assert.match(got.stdout, /^stage production, /);
  assert.doesNotMatch(got.stdout, /of-the-rule/);
  assert.deepEqual((await sandbox.getInfo()).network.rules["echo.boxes.test"][0].transform.headers, { Authorization: "***", "X-Stage": "***" });

  const [copy] = await sandbox.fork({ count: 1 });
  t.after(() => copy.kill());
  assert.equal((await ask(copy)).authorization, "Bearer of-the-rule");

  await sandbox.updateNetwork(only);
  assert.equal((await ask(sandbox, "--insecure")).authorization, "mine"); // its own certificate now

  const plain = await Sandbox.create({ timeoutMs: 120_000, network: only });
  t.after(() => plain.kill());
  await plain.updateNetwork({ ...only, rules });
  assert.equal((await ask(plain)).authorization, "Bearer of-the-rule");
});
