// The calls of E2B's SDKs for JavaScript that few programs make.
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { test } from "node:test";
import * as e2b from "e2b";

// Tests of a shared sandbox, which current gives, and of those that create makes.
export function rest(current, create) {
  test("git, here and to another repository", async () => {
    const { git, files, commands } = current();
    const [at, far] = ["/home/user/repo", "/home/user/far.git"];
    await git.init(far, { bare: true, initialBranch: "main" });
    await git.init(at, { initialBranch: "main" });
    await git.configureUser("A B", "a@example.org");
    assert.equal(await git.getConfig("user.name"), "A B");
    await git.setConfig("core.editor", "true", { scope: "local", path: at });
    await files.writeFiles([{ path: `${at}/a.txt`, data: "one" }]);
    assert.equal((await git.status(at)).untrackedCount, 1);
    await git.add(at);
    await git.commit(at, "first");
    await files.write(`${at}/a.txt`, "two");
    await git.restore(at, { paths: ["a.txt"] });
    assert.equal(await files.read(`${at}/a.txt`), "one");
    await git.commit(at, "second", { allowEmpty: true });
    await git.reset(at, { mode: "hard", target: "HEAD~1" });
    await git.createBranch(at, "side");
    await git.checkoutBranch(at, "main");
    await git.deleteBranch(at, "side");
    assert.deepEqual((await git.branches(at)).branches, ["main"]);
    await git.remoteAdd(at, "origin", far);
    assert.equal(await git.remoteGet(at, "origin"), far);
    await git.push(at, { remote: "origin", branch: "main" });
    await git.clone(far, { path: "/home/user/copy" });
    await git.pull(at, { remote: "origin", branch: "main" });
    assert.equal((await commands.run("git -C copy log --format=%s")).stdout, "first\n");
    await git.dangerouslyAuthenticate({ username: "u", password: "p", host: "git.example.org" });
  });

  test("a terminal that is joined, and one that is ended", async () => {
    const { pty } = current();
    let text = "";
    const first = await pty.create({ cols: 80, rows: 24, onData: () => {} });
    await first.disconnect();
    const again = await pty.connect(first.pid, { onData: (d) => (text += new TextDecoder().decode(d)) });
    await pty.sendInput(first.pid, new TextEncoder().encode("echo $((40 + 2)); exit\n"));
    await again.wait();
    assert.match(text, /42/);
    const second = await pty.create({ cols: 80, rows: 24, onData: () => {} });
    assert.equal(await pty.kill(second.pid), true);
    await assert.rejects(second.wait());
    assert.equal(await pty.kill(second.pid), false);
  });

  test("a sandbox that is connected to again", async () => {
    const s = await create({ timeoutMs: 120_000 });
    await s.files.write("kept", "yes");
    await s.betaPause();
    assert.equal(await (await s.connect()).files.read("kept"), "yes");
    const snapshot = await s.createSnapshot();
    const pages = s.listSnapshots({ limit: 1 });
    assert.deepEqual((await pages.nextItems()).map((x) => x.snapshotId), [snapshot.snapshotId]);
    assert.equal(await e2b.Sandbox.deleteSnapshot(snapshot.snapshotId), true);
    assert.equal((await e2b.Sandbox.getFullInfo(s.sandboxId)).sandboxId, s.sandboxId);
    assert.match(s.getMcpUrl(), /\/mcp$/);
    await assert.rejects(s.getMcpToken(), e2b.NotFoundError);
  });

  test("what is not there", async () => {
    const { Secret, Volume } = e2b;
    for (const call of [
      () => Secret.create("n", "v"), () => Secret.update("n", "v"), () => Secret.getInfo("n"), () => Secret.exists("n"), () => Secret.destroy("n"),
      () => Secret.list().nextItems(), () => Volume.create("v"), () => Volume.connect("v"), () => Volume.getInfo("v"), () => Volume.list(),
      () => Volume.destroy("v"),
    ]) await assert.rejects(call, /501.*on this server/s, String(call));
  });

  test("templates", async () => {
    const { Template } = e2b;
    for (const [name, there] of [["base", true], ["no-such-template", false]]) {
      assert.equal(await Template.exists(name), there, name);
      assert.equal(await Template.aliasExists(name), there, name);
    }
    const folder = mkdtempSync(join(tmpdir(), "recipe-"));
    try {
      writeFileSync(join(folder, "a.txt"), "a\n");
      const name = `t${randomUUID().replaceAll("-", "").slice(0, 12)}`;
      const recipe = () => Template({ fileContextPath: folder }).fromBaseImage().copy("a.txt", "/home/user/b.txt").runCmd("tr a b <b.txt >c.txt");
      const lines = [];
      await Template.build(recipe(), name, { onBuildLogs: (l) => lines.push(l.message) });
      assert.match(lines.join("\n"), /tr a b/);
      const box = await e2b.Sandbox.create(name, { timeoutMs: 120_000 });
      try {
        assert.equal(await box.files.read("/home/user/c.txt"), "b\n");
      } finally {
        await box.kill();
      }
      const info = await Template.buildInBackground(recipe(), name);
      let status;
      do status = await Template.getBuildStatus(info);
      while (["waiting", "building"].includes(status.status));
      assert.equal(status.status, "ready", status.reason?.message);
      assert.equal((await Template.assignTags(`${name}:default`, ["v2", "stable"])).buildId.length > 0, true);
      assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ["default", "stable", "v2"]);
      const tagged = await e2b.Sandbox.create(`${name}:v2`, { timeoutMs: 120_000 });
      try {
        assert.equal(await tagged.files.read("/home/user/c.txt"), "b\n");
      } finally {
        await tagged.kill();
      }
      await Template.removeTags(name, ["stable", "v2"]);
      assert.deepEqual((await Template.getTags(name)).map((t) => t.tag), ["default"]);
      const gone = await fetch(`${process.env.E2B_API_URL}/templates/${name}`, { method: "DELETE", headers: { "X-API-Key": process.env.E2B_API_KEY } });
      assert.equal(gone.status, 204);
      await assert.rejects(Template.build(Template().fromBaseImage().runCmd("exit 3"), `${name}-no`), /exit|3/);
    } finally {
      rmSync(folder, { recursive: true });
    }
    for (const call of [
      () => Template.assignTags("n:a", "b"), () => Template.removeTags("n", "b"), () => Template.getTags("n"),
    ]) await assert.rejects(call, /404.*there is no template n/s, String(call));
  });
}
