import assert from "node:assert/strict";
import { test } from "node:test";
import { CodeFailedError, Sandbox } from "bothy";
import { until } from "./setup.js";

test("variables stay, results come by type, and an exception is a result", async () => {
  await using sbx = await Sandbox.create({ template: "python-3.12", memoryMb: 1024 });
  assert.equal((await sbx.runCode("x = 21; print('set')")).stdout, "set\n");
  const answer = await sbx.runCode("x * 2");
  assert.equal(answer.text, "42");
  assert.equal(answer.executionCount, 2);
  const failed = await sbx.runCode("1 / 0");
  assert.equal(failed.error?.name, "ZeroDivisionError");
  assert.match(failed.error?.traceback ?? "", /ZeroDivisionError.*: division by zero/);
  assert.throws(() => failed.check(), CodeFailedError);
  assert.equal((await sbx.runCode("import os; os.environ['MY_KEY']", { env: { MY_KEY: "there" } })).text, "'there'");

  const plot = await sbx.runCode("import matplotlib.pyplot as p\np.plot([1, 4, 9])\np.show()", { timeoutSeconds: 60 });
  const png = plot.check().results.map((result) => result["image/png"]).find(Boolean);
  assert.equal(Buffer.from(png ?? "", "base64").subarray(1, 4).toString(), "PNG");
});

test("callbacks hear code while it runs", async () => {
  await using sbx = await Sandbox.create({ template: "python-3.12" });
  await sbx.exec("mkfifo fifo").then((made) => made.check());
  const heard: string[] = [];
  let answer: Promise<unknown> | undefined;
  const result = await sbx.runCode("print('ready')\nprint('got', open('fifo').read())\n7", {
    timeoutSeconds: 30,
    onStdout: (text) => {
      heard.push(text);
      // The code waits for this, so its first line has come before its end.
      answer ??= sbx.exec("printf answer > fifo");
    },
    onResult: (output) => heard.push(`result ${output["text/plain"]}`),
  });
  await answer;
  assert.equal(heard.join(""), "ready\ngot answer\nresult 7");
  assert.deepEqual([result.stdout, result.text], ["ready\ngot answer\n", "7"]);
});

test("contexts are apart, and can be interrupted, made new and removed", async () => {
  await using sbx = await Sandbox.create({ template: "python-3.12", memoryMb: 1024 });
  await sbx.runCode("owner = 'default'");
  const context = await sbx.contexts.create({ language: "python", cwd: "/tmp" });
  assert.equal((await sbx.runCode("owner", { context })).error?.name, "NameError");
  assert.equal((await sbx.runCode("import os; os.getcwd()", { context })).text, "'/tmp'");
  assert.ok((await sbx.contexts.list()).some(({ id }) => id === context.id));

  const endless = sbx.runCode("import time\nopen('/tmp/begun', 'w').close()\nwhile True: time.sleep(0.01)", { context });
  await until("the code runs", () => sbx.files.exists("/tmp/begun"));
  await sbx.contexts.interrupt(context);
  assert.equal((await endless).error?.name, "KeyboardInterrupt");

  await sbx.runCode("mine = 1", { context });
  await sbx.contexts.restart(context);
  assert.equal((await sbx.runCode("mine", { context })).error?.name, "NameError");
  await sbx.contexts.remove(context);
  await assert.rejects(sbx.runCode("1", { context }), { code: "context_not_found" });
});

test("code that takes too long is interrupted, and so is code that is aborted", async () => {
  await using sbx = await Sandbox.create({ template: "python-3.12" });
  const late = await sbx.runCode("import time; time.sleep(100)", { timeoutSeconds: 1 });
  assert.equal(late.timedOut, true);

  const stop = new AbortController();
  const running = sbx.runCode("try:\n  open('/tmp/begun', 'w').close()\n  time.sleep(100)\nfinally:\n  open('/tmp/over', 'w').close()", { signal: stop.signal });
  await until("the code runs", () => sbx.files.exists("/tmp/begun"));
  stop.abort();
  await assert.rejects(running, { name: "AbortError" });
  await until("the code is over", () => sbx.files.exists("/tmp/over"));
});

test("JavaScript and bash have contexts, too", async () => {
  await using sbx = await Sandbox.create({ template: "node-22", memoryMb: 1024 });
  await sbx.runCode("let x = 6", { language: "javascript" });
  assert.equal((await sbx.runCode("x * 7", { language: "javascript" })).text, "42");
  await sbx.runCode("cd /tmp; y=5", { language: "bash" });
  assert.equal((await sbx.runCode("echo $y in $PWD", { language: "bash" })).stdout, "5 in /tmp\n");
});

test("a shell stays", async () => {
  await using sbx = await Sandbox.create({ template: "python-3.12" });
  const shell = await sbx.shell({ cwd: "/tmp" });
  assert.equal((await shell.exec("pwd; x=41")).check().stdout, "/tmp\n");
  assert.equal((await shell.exec("cd /; (exit 5)")).exitCode, 5);
  const heard: string[] = [];
  const late = await shell.exec("echo $PWD $x; sleep 60", { timeoutSeconds: 0.5, onStdout: (text) => heard.push(text) });
  assert.deepEqual([late.timedOut, late.ok, heard.join("")], [true, false, "/ 41\n"]);
  await shell.restart();
  assert.equal((await shell.exec('echo "$x"')).stdout, "\n");
  const gone = await shell.exec("exit 3");
  assert.deepEqual([gone.exitCode, gone.ended], [3, true]);
  await shell.close();
  await assert.rejects(shell.exec("true"), { code: "context_not_found" });
  await sbx.getShell().exec("y=1");
  assert.equal((await sbx.getShell().exec("echo $y")).stdout, "1\n");
});
