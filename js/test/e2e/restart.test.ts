import assert from "node:assert/strict";
import { test } from "node:test";
import { Bothy } from "bothy";
import { Server } from "./server.js";
import { template } from "./setup.js";

test("a process and its follower live through the death of the server", async () => {
  await using server = await Server.start();
  const bothy = new Bothy(server.access);
  await using sbx = await bothy.sandboxes.create({ template });
  const process = await sbx.spawn("for i in $(seq 400); do echo line $i; sleep 0.01; done");
  let stdout = "";
  let dying: Promise<void> | undefined;
  for await (const event of process) {
    if (!event.isFinal) stdout += event.data;
    if (stdout.includes("line 20\n")) dying ??= server.killAndRestart();
  }
  await dying;
  assert.equal(stdout, Array.from({ length: 400 }, (_, i) => `line ${i + 1}\n`).join(""));
  assert.equal((await sbx.exec("echo still here")).stdout, "still here\n");
  const types: string[] = [];
  for await (const event of sbx.events({ follow: false })) types.push(event.type);
  assert.equal(types[0], "sandbox.created");
});
