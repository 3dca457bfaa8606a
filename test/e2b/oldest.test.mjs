// What all versions of E2B's SDK for JavaScript have that work here, against a server of this tree.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CommandExitError, Sandbox } from "e2b";

test("the oldest", async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, envs: { COLOUR: "green" } });
  try {
    const result = await sandbox.commands.run('echo "$COLOUR"; echo err >&2');
    assert.deepEqual([result.stdout, result.stderr], ["green\n", "err\n"]);
    await assert.rejects(sandbox.commands.run("exit 3"), CommandExitError);
    await sandbox.files.write("a/b", "héllo");
    assert.equal(await sandbox.files.read("a/b"), "héllo");
    assert.deepEqual((await sandbox.files.list("a")).map((e) => e.name), ["b"]);
    assert.equal(await (await fetch(await sandbox.downloadUrl("a/b"))).text(), "héllo");
    await sandbox.setTimeout(100_000);
    assert.equal((await sandbox.getInfo()).sandboxId, sandbox.sandboxId);
    await sandbox.betaPause();
    assert.equal(await sandbox.isRunning(), false);
    const again = await Sandbox.connect(sandbox.sandboxId);
    assert.equal((await again.commands.run("cat a/b")).stdout, "héllo");
  } finally {
    await sandbox.kill();
  }
});
