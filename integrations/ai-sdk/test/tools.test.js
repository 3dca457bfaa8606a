import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { generateText, stepCountIs } from "ai";
import { Sandbox } from "bothy";
import { bothyTools } from "bothy-ai-sdk";
import { call, say, scripted } from "../examples/scripted.js";

let sandbox;
before(async () => {
  sandbox = await Sandbox.create({ template: "python-3.12" });
});
after(() => sandbox?.terminate());

const run = (name, input, options = {}) => bothyTools(sandbox, options)[name].execute(input, { toolCallId: "1", messages: [] });

/** Waits until a command in the sandbox succeeds. */
async function until(command) {
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
    if ((await sandbox.exec(command)).ok) return;
  }
  assert.fail(`not within a minute: ${command}`);
}

test("an agent's calls reach the sandbox, and its answers the model", async () => {
  const model = scripted(
    call("bash", { command: "echo $GREETING; echo bad >&2; exit 3" }),
    call("readFile", { path: "nowhere.txt" }),
    say("done"),
  );
  const { text, steps } = await generateText({ model, prompt: "go", tools: bothyTools(sandbox, { env: { GREETING: "grüß dich" } }), stopWhen: stepCountIs(5) });
  assert.equal(text, "done");
  assert.deepEqual(steps[0].toolResults[0].output, { exitCode: 3, stdout: "grüß dich\n", stderr: "bad\n" });
  const failed = steps[1].content.find((part) => part.type === "tool-error");
  assert.match(String(failed.error), /nowhere\.txt/);
});

test("input that the schema does not allow is refused", async () => {
  const model = scripted(call("editFile", { path: "x" }), say("sorry"));
  const { steps } = await generateText({ model, prompt: "go", tools: bothyTools(sandbox), stopWhen: stepCountIs(3) });
  assert.ok(steps[0].content.some((part) => part.type === "tool-error"));
});

test("an abort ends the command", async () => {
  const stop = new AbortController();
  const model = scripted(call("bash", { command: "touch /tmp/begun; exec sleep 4321" }), say("never"));
  const running = generateText({ model, prompt: "go", tools: bothyTools(sandbox, { timeoutSeconds: 600 }), stopWhen: stepCountIs(3), abortSignal: stop.signal });
  await until("test -e /tmp/begun && pgrep -f '^sleep 4321'");
  stop.abort();
  await Promise.allSettled([running]);
  await until("! pgrep -f '^sleep 4321'");
});

test("a time-out ends the command, and says so", async () => {
  const outcome = await run("bash", { command: "echo before; sleep 5432", timeoutSeconds: 1 });
  assert.equal(outcome.stdout, "before\n");
  assert.notEqual(outcome.exitCode, 0);
  assert.match(outcome.note, /ran out of its 1 seconds/);
  await until("! pgrep -f '^sleep 5432'");
  assert.match((await run("bash", { command: "sleep 5432", timeoutSeconds: 9999 }, { timeoutSeconds: 1 })).note, /ran out of its 1 seconds/);
});

test("much output keeps its beginning and its end, and no character is cut", async () => {
  const { stdout } = await run("bash", { command: "python3 -c \"print('A' + 'ü' * 5000 + 'Z')\"" }, { maxOutputBytes: 1001 });
  const [, head, left, tail] = /^(Aü+)\n\[(\d+) bytes left out\]\n(ü+Z\n)$/.exec(stdout);
  assert.equal(Buffer.byteLength(head) + Buffer.byteLength(tail) + Number(left), 10_003);
  assert.ok(Buffer.byteLength(head) + Buffer.byteLength(tail) <= 1001);
});

test("names with spaces and letters of all kinds, and binary files", async () => {
  const path = "a folder/naïve 文件 'q\".bin";
  const bytes = Buffer.from([0, 255, 254, 10, 128]);
  assert.equal((await run("writeFile", { path, content: bytes.toString("base64"), encoding: "base64" })).size, 5);
  assert.deepEqual(Buffer.from(await sandbox.files.readBytes(path)), bytes);
  await assert.rejects(run("readFile", { path }), /binary file/);
  await assert.rejects(run("editFile", { path, find: "a", replace: "b" }), /binary file/);
  await assert.rejects(run("writeFile", { path, content: "?!", encoding: "base64" }), /not base64/);
  assert.deepEqual(Buffer.from(await sandbox.files.readBytes(path)), bytes);
  assert.match(await run("listFiles", { path: "a folder" }), /\/workspace\/a folder\/naïve 文件 'q"\.bin \(5 bytes\)/);
});

test("lines of a file", async () => {
  await sandbox.files.write("lines", Array.from({ length: 5000 }, (_, n) => `line ${n + 1}\n`).join(""));
  assert.deepEqual(await run("readFile", { path: "lines", firstLine: 4999 }), { content: "line 4999\nline 5000\n", firstLine: 4999, lastLine: 5000, more: false });
  assert.deepEqual(await run("readFile", { path: "lines", firstLine: 2, lines: 1 }), { content: "line 2\n", firstLine: 2, lastLine: 2, more: true });
  assert.deepEqual(await run("readFile", { path: "lines" }, { maxOutputBytes: 15 }), { content: "line 1\nline 2\n", firstLine: 1, lastLine: 2, more: true });
  await assert.rejects(run("readFile", { path: "lines", firstLine: 6000 }), /has 5000 lines/);
  await sandbox.files.write("long", "x".repeat(100));
  assert.equal((await run("readFile", { path: "long" }, { maxOutputBytes: 10 })).content, "xxxxxxxxxx\n[90 characters of this line left out]\n");
});

test("edits", async () => {
  await sandbox.files.write("edit", "one two one $& end");
  await assert.rejects(run("editFile", { path: "edit", find: "three", replace: "" }), /does not contain/);
  await assert.rejects(run("editFile", { path: "edit", find: "one", replace: "" }), /2 times/);
  assert.equal((await run("editFile", { path: "edit", find: "one", replace: "$&", all: true })).replaced, 2);
  assert.equal(await sandbox.files.read("edit"), "$& two $& $& end");
});

test("options that make no sense are refused", () => {
  assert.throws(() => bothyTools(sandbox, { timeoutSeconds: 0 }), /timeoutSeconds is 0/);
  assert.throws(() => bothyTools(sandbox, { maxOutputBytes: 0.5 }), /maxOutputBytes is 0.5/);
});

test("an untested version says so once", async () => {
  const { checkVersion } = await import("../dist/tested.js");
  const told = [];
  const listen = (warning) => warning.code === "BOTHY_UNTESTED_VERSION" && told.push(warning.message);
  process.on("warning", listen);
  for (const version of ["7.0.173", "6.0.326", "7.1.0", "8.0.0"]) checkVersion(version);
  await new Promise(setImmediate);
  process.off("warning", listen);
  assert.deepEqual(told, ["bothy-ai-sdk was tested with ai 6.0.326 and 7.0.173, not with 7.1.0. It may work."]);
});

test("the example", () => {
  const example = fileURLToPath(new URL("../examples/agent.js", import.meta.url));
  assert.equal(execFileSync(process.execPath, [example], { encoding: "utf8" }), "The sum is 285.\n");
});
