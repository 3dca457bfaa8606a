// E2B's SDK for JavaScript with a domain and TLS, against a server of this tree.
import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { test } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";

test("by host names", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  try {
    for (const port of [49983, 49999, 8000]) {
      appendFileSync(process.env.HOSTS, `127.0.0.1 ${sandbox.getHost(port).split(":")[0]}\n`);
    }
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
