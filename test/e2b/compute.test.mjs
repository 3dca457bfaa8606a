// ComputeSDK's provider for E2B, against a server of this tree.
import assert from "node:assert/strict";
import { test } from "node:test";
import { e2b } from "@computesdk/e2b";

test("the provider", async () => {
  const provider = e2b({ apiKey: process.env.E2B_API_KEY, timeout: 120_000 });
  const sandbox = await provider.sandbox.create({ envs: { COLOUR: "green" } });
  try {
    const command = await sandbox.runCommand('echo "$COLOUR"; echo err >&2; exit 3');
    assert.deepEqual([command.stdout, command.stderr, command.exitCode], ["green\n", "err\n", 3]);
    await sandbox.filesystem.mkdir("/tmp/d");
    await sandbox.filesystem.writeFile("/tmp/d/f", "content");
    assert.equal(await sandbox.filesystem.readFile("/tmp/d/f"), "content");
    assert.equal(await sandbox.filesystem.exists("/tmp/d/f"), true);
    assert.deepEqual((await sandbox.filesystem.readdir("/tmp/d")).map((e) => e.name), ["f"]);
    await sandbox.filesystem.remove("/tmp/d/f");
    assert.equal(await sandbox.filesystem.exists("/tmp/d/f"), false);
    assert.match(await sandbox.getUrl({ port: 8000 }), new RegExp(`8000-${sandbox.sandboxId}`));
    assert.equal((await sandbox.getInfo()).status, "running");
    assert.equal((await provider.sandbox.getById(sandbox.sandboxId)).sandboxId, sandbox.sandboxId);
    assert.ok((await provider.sandbox.list()).some((s) => s.sandboxId === sandbox.sandboxId));
    const snapshot = await provider.snapshot.create(sandbox.sandboxId);
    assert.ok(snapshot.id);
  } finally {
    await sandbox.destroy();
  }
});
