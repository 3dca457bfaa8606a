// What E2B's quick starts begin with, one program each, against a server of this tree.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomBytes } from "node:crypto";
import { Sandbox, Template, waitForTimeout } from "@e2b/code-interpreter";

async function start(t, options = {}) {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...options });
  t.after(() => sandbox.kill());
  return sandbox;
}

test("the first sandbox", async (t) => {
  const sandbox = await start(t);
  const execution = await sandbox.runCode('print("hello world")');
  assert.deepEqual(execution.logs.stdout, ["hello world\n"]);
  assert.ok((await sandbox.files.list("/")).some((entry) => entry.name === "home"));
});

test("a tool of a model", async (t) => {
  const sandbox = await start(t);
  const messages = [];
  for (const code of ["orders['total']", "orders = {'total': 42}\norders['total']"]) {
    const execution = await sandbox.runCode(code);
    messages.push(execution.error?.traceback ?? execution.text);
  }
  assert.match(messages[0], /NameError/);
  assert.equal(messages[1], "42");
});

test("files up and down", async (t) => {
  const sandbox = await start(t);
  await sandbox.files.write("/home/user/up/one.txt", "one");
  await sandbox.files.write([{ path: "/home/user/a", data: "a" }, { path: "/home/user/b", data: new Blob(["b"]) }]);
  assert.equal(await sandbox.files.read("/home/user/up/one.txt"), "one");
  assert.deepEqual([...(await sandbox.files.read("/home/user/b", { format: "bytes" }))], [98]);
});

test("analysis of data", async (t) => {
  const sandbox = await start(t);
  await sandbox.files.write("dataset.csv", "year,films\n2022,3\n2023,5\n2024,8\n");
  const code = "import pandas as pd, matplotlib.pyplot as plt\ntable = pd.read_csv('dataset.csv')\nplt.bar(table.year, table.films)\nplt.show()";
  const { results, error } = await sandbox.runCode(code);
  assert.equal(error, undefined);
  const image = results.find((r) => r.png);
  assert.ok(Buffer.from(image.png, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
  assert.equal(image.chart.type, "bar");
});

test("output as it comes", async (t) => {
  const said = [];
  const sandbox = await start(t);
  await sandbox.runCode("for i in range(3): print(i, flush=True)", { onStdout: (m) => said.push(m.line) });
  const command = await sandbox.commands.run("echo out; sleep 60", { background: true, onStdout: (data) => said.push(data) });
  while (!said.join("").includes("out\n")) await new Promise((r) => setTimeout(r, 20));
  assert.equal(said.join(""), "0\n1\n2\nout\n");
  assert.ok(await command.kill());
});

test("which sandbox is whose, and sleep", async (t) => {
  const mine = await start(t, { metadata: { userId: "quick-start-js" }, envs: { MY_VAR: "of the sandbox" } });
  const page = await Sandbox.list({ query: { metadata: { userId: "quick-start-js" } } }).nextItems();
  assert.deepEqual(page.map((s) => s.sandboxId), [mine.sandboxId]);
  await mine.runCode("x = 41");
  await mine.pause();
  const again = await Sandbox.connect(page[0].sandboxId);
  assert.equal((await again.runCode("x + 1")).text, "42");
  assert.equal((await again.commands.run("echo $MY_VAR")).stdout, "of the sandbox\n");
  await again.setTimeout(60_000);
  assert.ok(await again.isRunning());
});

test("files by signed addresses, and a folder that is watched", async (t) => {
  const sandbox = await start(t);
  await sandbox.files.makeDir("/home/user/watched");
  let seen;
  const one = new Promise((resolve) => (seen = resolve));
  const watch = await sandbox.files.watchDir("/home/user/watched", () => seen());
  const form = new FormData();
  form.append("file", new Blob(["by hand"]), "sent");
  const sent = await fetch(await sandbox.uploadUrl("/home/user/watched/sent", { useSignatureExpiration: 60_000 }), { method: "POST", body: form });
  assert.ok(sent.ok);
  await one;
  await watch.stop();
  const got = await fetch(await sandbox.downloadUrl("/home/user/watched/sent", { useSignatureExpiration: 60_000 }));
  assert.equal(await got.text(), "by hand");
});

test("environment, contexts and other languages", async (t) => {
  const sandbox = await start(t, { envs: { MY_VAR: "of the sandbox" } });
  assert.equal((await sandbox.commands.run("echo $MY_VAR", { envs: { MY_VAR: "of the command" } })).stdout, "of the command\n");
  assert.equal((await sandbox.runCode("import os; os.environ['MY_VAR']", { envs: { MY_VAR: "of the code" } })).text, "of the code");
  assert.deepEqual((await sandbox.runCode("echo $((6 * 7))", { language: "bash" })).logs.stdout, ["42\n"]);
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.equal((await sandbox.runCode("import os; os.getcwd()", { context })).text, "/tmp");
});

test("a template of one's own", async (t) => {
  const name = `quick${randomBytes(6).toString("hex")}`;
  t.after(() => fetch(`${process.env.E2B_API_URL}/templates/${name}`, { method: "DELETE", headers: { "X-API-Key": process.env.E2B_API_KEY } }));
  const recipe = Template().fromBaseImage().setEnvs({ HELLO: "Hello, World!" }).setStartCmd("echo $HELLO >/tmp/said", waitForTimeout(1_000));
  await Template.build(recipe, name, { cpuCount: 1, memoryMB: 1024 });
  const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 });
  t.after(() => sandbox.kill());
  assert.equal((await sandbox.commands.run("echo $HELLO; cat /tmp/said")).stdout, "Hello, World!\nHello, World!\n");
});
