import assert from "node:assert/strict";
import { test } from "node:test";
import { Bothy, Sandbox, SandboxNotFoundError, SandboxPausedError } from "bothy";
import { template, until } from "./setup.js";

/** Starts a process that counts, and returns how to ask it how far it is. */
async function counter(sbx: Sandbox): Promise<(sbx: Sandbox) => Promise<number>> {
  await sbx.spawn("i=0; while :; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.02; done");
  const read = async (which: Sandbox): Promise<number> => Number(await which.files.read("/tmp/count"));
  await until("the counter runs", () => sbx.files.exists("/tmp/count"));
  return read;
}

test("a paused sandbox is back exactly where it was, woken by its snapshot's id", async () => {
  const sbx = await Sandbox.create({ template: "node-22", memoryMb: 1024 });
  try {
    const count = await counter(sbx);
    await sbx.files.write("notes", "remember");
    const before = await count(sbx);
    const snapshotId = await sbx.pause();
    assert.equal((await sbx.refresh()).state, "paused");
    await assert.rejects(sbx.exec("true"), SandboxPausedError);

    const back = await Sandbox.resume(snapshotId);
    assert.deepEqual([back.id, back.info.state, back.info.resumed?.kind], [sbx.id, "running", "memory"]);
    assert.equal(await back.files.read("notes"), "remember");
    const after = await count(back);
    assert.ok(after >= before);
    await until("the counter counts on", async () => (await count(back)) > after);
  } finally {
    await sbx.terminate();
  }
});

test("a paused sandbox is woken by its own id, and keeps only files when told so", async () => {
  await using sbx = await Sandbox.create({ template });
  await counter(sbx);
  await sbx.pause({ memory: false });
  const back = await Sandbox.resume(sbx.id);
  assert.equal(back.id, sbx.id);
  assert.equal(await back.files.exists("/tmp/count"), true);
  assert.deepEqual((await back.exec("pgrep -cf 'mv /tmp/next'")).exitCode, 1, "the processes are gone");
});

test("what sleeps with its memory is started anew with its files, and a snapshot holds files alone when told so", async () => {
  await using sbx = await Sandbox.create({ template });
  await counter(sbx);
  const live = await sbx.snapshot({ memory: false });
  assert.equal(live.kind, "files");
  await using copy = await Sandbox.create({ snapshotId: live.id });
  assert.equal(await copy.files.exists("/tmp/count"), true);
  await sbx.pause();
  const back = await Sandbox.resume(sbx.id, { memory: false });
  assert.equal(back.info.resumed?.kind, "files");
  assert.equal(await back.files.exists("/tmp/count"), true);
  for (const anew of [copy, back]) assert.equal((await anew.exec("pgrep -cf 'mv /tmp/next'")).exitCode, 1, "the processes are gone");
});

test("a followed process is joined again after a pause", async () => {
  await using sbx = await Sandbox.create({ template });
  const process = await sbx.spawn("for i in $(seq 60); do echo line $i; sleep 0.02; done");
  let text = "";
  let resumed: Promise<void> | undefined;
  for await (const event of process) {
    if (!event.isFinal) text += event.data;
    if (resumed) continue;
    await sbx.pause();
    // The loop finds it asleep, and waits.
    resumed = new Promise((resolve, reject) => setTimeout(() => void sbx.resume().then(() => resolve(), reject), 1500));
  }
  await resumed;
  assert.equal(text, Array.from({ length: 60 }, (_, i) => `line ${i + 1}\n`).join(""));
});

test("a live snapshot, a roll-back, and what was there until then", async () => {
  await using sbx = await Sandbox.create({ template });
  await sbx.files.write("state", "good");
  const good = await sbx.snapshot({ name: "good" });
  assert.deepEqual([good.sandboxId, good.name, good.kind], [sbx.id, "good", "memory"]);
  await sbx.files.write("state", "bad");
  assert.equal((await sbx.rollback(good)).state, "running");
  assert.equal(await sbx.files.read("state"), "good");
  const all = await sbx.snapshots().all();
  assert.equal(all.length, 2);
  const bad = all.find(({ id }) => id !== good.id);
  await sbx.rollback(bad?.id ?? "");
  assert.equal(await sbx.files.read("state"), "bad");
  await assert.rejects(Sandbox.get(good.id), (error: SandboxNotFoundError) =>
    error.message.includes("a snapshot's id") && error.hint!.includes(`client.snapshots.get("${good.id}")`));
});

test("forks have memory and processes, and are apart", async () => {
  await using sbx = await Sandbox.create({ template });
  const count = await counter(sbx);
  const copies = await sbx.fork(2, { metadata: { copyOf: sbx.id } });
  try {
    assert.equal(new Set([sbx.id, ...copies.map((copy) => copy.id)]).size, 3);
    for (const copy of copies) {
      const seen = await count(copy);
      await until("the copy counts on", async () => (await count(copy)) > seen);
      await copy.files.write("mine", copy.id);
      assert.deepEqual(copy.info.metadata, { copyOf: sbx.id });
    }
    assert.equal(await sbx.files.exists("mine"), false);
    assert.equal(await copies[0]?.files.read("mine"), copies[0]?.id);
    const names = await Promise.all([sbx, ...copies].map(async (one) => (await one.exec("hostname; head -c 16 /dev/urandom | od -An -tx1")).stdout));
    assert.equal(new Set(names).size, 3);
  } finally {
    for (const copy of copies) await copy.terminate();
  }
});

test("a snapshot starts new sandboxes, is carried as an archive, and is deleted", async () => {
  const { snapshots } = new Bothy();
  await using sbx = await Sandbox.create({ template });
  await sbx.files.write("state", "kept");
  const { id } = await sbx.snapshot();
  assert.equal((await snapshots.get(id)).sandboxId, sbx.id);

  const archive = await new Response(await snapshots.export(id, { passphrase: "open sesame" })).blob();
  await assert.rejects(snapshots.import(archive, { passphrase: "wrong" }));
  const copy = await snapshots.import(archive, { passphrase: "open sesame", name: "carried" });
  assert.equal(copy.name, "carried");
  {
    await using other = await Sandbox.create({ snapshotId: copy.id });
    assert.notEqual(other.id, sbx.id);
    assert.equal(await other.files.read("state"), "kept");
  }
  for (const each of [id, copy.id]) {
    await snapshots.delete(each);
    await assert.rejects(snapshots.get(each), { code: "snapshot_not_found" });
  }
});
