// What E2B's quick starts begin with, one program each, against a server of this tree.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";

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
