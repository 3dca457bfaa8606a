import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { AIMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { Sandbox } from "bothy";
import { BothySandbox } from "bothy-deepagents";
import { createDeepAgent, isSandboxProtocol } from "deepagents";

let sandbox;
let backend;
before(async () => {
  sandbox = await Sandbox.create({ template: "python-3.12", timeoutSeconds: 1200 });
  backend = new BothySandbox(sandbox);
});
after(() => sandbox?.terminate());

/** Waits until a command in the sandbox succeeds. */
async function until(command) {
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
    if ((await sandbox.exec(command)).ok) return;
  }
  assert.fail(`not within a minute: ${command}`);
}

const bytes = (text) => new TextEncoder().encode(text);
const folder = async (name) => {
  const path = `/workspace/${name}`;
  await sandbox.files.mkdir(path);
  return path;
};

test("it is what the framework takes for a sandbox", () => {
  assert.ok(isSandboxProtocol(backend));
  assert.equal(backend.id, sandbox.id);
});

test("commands", async () => {
  assert.deepEqual(await backend.execute("echo out; echo bad >&2; exit 3"), { output: "out\nbad\n", exitCode: 3, truncated: false });
  assert.deepEqual(await backend.execute("true"), { output: "", exitCode: 0, truncated: false });
  assert.equal((await backend.execute("nonexistent-command")).exitCode, 127);
  assert.equal((await backend.execute("cat <<'END'\ngrüß dich \"$HOME\"\nEND")).output, 'grüß dich "$HOME"\n');
});

test("a time-out ends the command, and says so", async () => {
  const late = await new BothySandbox(sandbox, { timeoutSeconds: 1 }).execute("echo begun; sleep 4321");
  assert.deepEqual([late.exitCode, late.output], [124, "begun\n\n[the command was ended after 1 seconds]"]);
  await until("! pgrep -f '^sleep 4321'");
  assert.throws(() => new BothySandbox(sandbox, { timeoutSeconds: -1 }), /timeoutSeconds is -1/);
});

test("an abort ends the command", async () => {
  const stop = new AbortController();
  const running = backend.execute("touch /tmp/begun; exec sleep 5432", { signal: stop.signal });
  await until("test -e /tmp/begun && pgrep -f '^sleep 5432'");
  stop.abort();
  await assert.rejects(running, { name: "AbortError" });
  await until("! pgrep -f '^sleep 5432'");
});

test("files go in and out byte for byte, whatever their names", async () => {
  const all = Uint8Array.from({ length: 256 }, (_, n) => n);
  const path = "/tmp/ein Ordner/größe 'x' 文件.bin";
  assert.deepEqual(await backend.uploadFiles([[path, all], ["/tmp/empty", new Uint8Array()]]), [{ path, error: null }, { path: "/tmp/empty", error: null }]);
  const [one, two] = await backend.downloadFiles([path, "/tmp/empty"]);
  assert.deepEqual([one.content, one.error, two.content.length], [all, null, 0]);
});

test("some files may fail, and the others arrive", async () => {
  await sandbox.files.mkdir("/tmp/a-folder");
  await sandbox.files.write("/tmp/secret", "x", { user: "root", mode: 0o600 });
  const found = await backend.downloadFiles(["/tmp/nowhere", "/tmp/a-folder", "relative", "/tmp/secret", "/etc/hostname"]);
  assert.deepEqual(found.map(({ error }) => error), ["file_not_found", "is_directory", "invalid_path", "permission_denied", null]);
  assert.deepEqual(found.map(({ content }) => content === null), [true, true, true, true, false]);
  const sent = await backend.uploadFiles([["/etc/passwd", bytes("x")], ["relative", bytes("x")], ["/tmp/secret/below", bytes("x")], ["/tmp/a-folder", bytes("x")], ["/tmp/good", bytes("good")]]);
  assert.deepEqual(sent.map(({ error }) => error), ["permission_denied", "invalid_path", "invalid_path", "is_directory", null]);
  assert.equal(await sandbox.files.read("/tmp/good"), "good");
});

test("read, by lines and whole", async () => {
  await sandbox.files.write("/tmp/lines.txt", Array.from({ length: 1000 }, (_, n) => `line ${n + 1}\n`).join(""));
  assert.match((await backend.read("/tmp/lines.txt", 500, 2)).content, /^\s*501\tline 501\n\s*502\tline 502\n?$/);
  assert.equal((await backend.readRaw("/tmp/lines.txt")).data.content.split("\n").length, 1001);
  assert.match((await backend.read("/tmp/nowhere.txt")).error, /not found/);
  await sandbox.files.write("/tmp/dot.png", Uint8Array.of(0x89, 0x50, 0, 255));
  assert.deepEqual([...(await backend.read("/tmp/dot.png")).content], [0x89, 0x50, 0, 255]);
});

test("write replaces, and makes folders", async () => {
  const path = "/workspace/new folder/deep/ü.txt";
  for (const content of ["first", "zweiter, länger\n"]) {
    assert.equal((await backend.write(path, content)).error, undefined);
    assert.equal(await sandbox.files.read(path), content);
  }
  assert.match((await backend.write("/etc/passwd", "x")).error, /permission_denied/);
});

test("edit", async () => {
  await sandbox.files.write("/tmp/edit.txt", "one two one end");
  assert.match((await backend.edit("/tmp/edit.txt", "three", "")).error, /not found/);
  assert.match((await backend.edit("/tmp/edit.txt", "one", "")).error, /Multiple/);
  assert.equal((await backend.edit("/tmp/edit.txt", "one", "größer", true)).occurrences, 2);
  assert.equal(await sandbox.files.read("/tmp/edit.txt"), "größer two größer end");
  assert.match((await backend.edit("/tmp/nowhere.txt", "a", "b")).error, /not found/);
});

test("ls, glob and grep", async () => {
  const at = await folder("tree");
  await backend.uploadFiles([[`${at}/a b.py`, bytes("x = 1\n# TODO: $x 'quoted'\n")], [`${at}/sub/ü.py`, bytes("TODO\n")], [`${at}/sub/c.txt`, bytes("todo\n")]]);
  const { files } = await backend.ls(at);
  assert.deepEqual(files.map(({ path, is_dir: isFolder }) => [path, isFolder]).sort(), [[`${at}/a b.py`, false], [`${at}/sub/`, true]]);
  assert.deepEqual((await backend.glob("**/*.py", at)).files.map(({ path }) => path).sort(), ["a b.py", "sub/ü.py"]);
  const found = await backend.grep("TODO", at);
  assert.deepEqual(found.matches.map(({ path, line }) => [path, line]).sort(), [[`${at}/a b.py`, 2], [`${at}/sub/ü.py`, 1]]);
  assert.deepEqual((await backend.grep("$x 'quoted'", at, "*.py")).matches.map(({ text }) => text), ["# TODO: $x 'quoted'"]);
  assert.deepEqual((await backend.grep("nothing like it", at)).matches, []);
});

test("delete", async () => {
  const at = await folder("doomed");
  await sandbox.files.write(`${at}/inside/file`, "x");
  assert.equal((await backend.delete(at)).path, at);
  assert.equal(await sandbox.files.exists(at), false);
  assert.match((await backend.delete(at)).error, /not found/);
});

test("a large result of a tool is left in a file, which the agent can read", async () => {
  const model = fakeModel()
    .respondWithTools([{ name: "execute", args: { command: "seq 100000" }, id: "big" }])
    .respondWithTools([{ name: "grep", args: { pattern: "77777", path: "/large_tool_results" }, id: "look" }])
    .respond(new AIMessage("done"));
  const { messages } = await createDeepAgent({ model, backend }).invoke({ messages: [{ role: "user", content: "go" }] });
  const [big, look] = messages.filter((message) => message.type === "tool").map(({ content }) => String(content));
  assert.ok(big.length < 50_000, `the model saw ${big.length} characters`);
  const [path] = /\/large_tool_results\/[^\s'"`]+/.exec(big);
  assert.match(await sandbox.files.read(path), /\n99999\n100000\n/);
  assert.ok(look.includes(path), look);
});

test("a sandbox that has ended is told as such, and not as a missing file", async () => {
  const other = await BothySandbox.create({ template: "python-3.12" });
  await other.close();
  await assert.rejects(async () => other.execute("true"), { code: "sandbox_ended" });
  await assert.rejects(async () => other.downloadFiles(["/etc/hostname"]), { code: "sandbox_ended" });
});

test("an untested version says so once", async () => {
  const { checkVersion } = await import("../dist/tested.js");
  const told = [];
  const listen = (warning) => warning.code === "BOTHY_UNTESTED_VERSION" && told.push(warning.message);
  process.on("warning", listen);
  for (const version of ["1.14.1", "1.15.0", "2.0.0"]) checkVersion(version);
  await new Promise(setImmediate);
  process.off("warning", listen);
  assert.deepEqual(told, ["bothy-deepagents was tested with deepagents 1.14.1, not with 1.15.0. It may work."]);
});

test("the example", () => {
  const example = fileURLToPath(new URL("../examples/agent.js", import.meta.url));
  assert.equal(execFileSync(process.execPath, [example], { encoding: "utf8" }), "The sum is 285.\n");
});
