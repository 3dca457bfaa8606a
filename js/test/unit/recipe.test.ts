import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { ConflictError, InvalidArgumentError, Template } from "bothy";
import { Ignored, packContext } from "#internal/buildcontext.js";
import { readTar } from "#internal/tar.js";
import { brokenEvents, events, FakeServer, json } from "./fake.js";

const repository = join(dirname(fileURLToPath(import.meta.url)), "../../../..");

async function folder(t: TestContext, files: string[]): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "bothy-context-"));
  t.after(() => rm(path, { recursive: true }));
  for (const name of files) {
    await mkdir(dirname(join(path, name)), { recursive: true });
    await writeFile(join(path, name), name);
  }
  return path;
}

async function names(archive: AsyncIterable<Uint8Array>): Promise<string[]> {
  const found: string[] = [];
  for await (const entry of readTar(archive)) found.push(entry.name.replace(/\/$/, ""));
  return found;
}

test("each step becomes a line", () => {
  const recipe = Template("python-3.12:v3")
    .apt("ffmpeg", "git=1:2.*")
    .pip("pandas==2.*")
    .npm("typescript@5")
    .copy("app", "/app")
    .copy(["a b", "*.txt"], "/data/", { user: "user", mode: 0o640 })
    .env({ GREETING: 'say "hi" for $5 \\o/', EMPTY: "" })
    .workdir("/app")
    .user("user")
    .run("echo 'one'\necho two")
    .pip("numpy");
  assert.deepEqual(recipe.dockerfile.trimEnd().split("\n"), [
    "FROM python-3.12:v3",
    `RUN ["/bin/sh","-c","apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ffmpeg 'git=1:2.*' && rm -rf /var/lib/apt/lists/*"]`,
    'RUN --mount=type=cache,target=/root/.cache/pip ["pip","install","pandas==2.*"]',
    'RUN --mount=type=cache,target=/root/.npm ["npm","install","--global","typescript@5"]',
    'COPY ["app","/app"]',
    'COPY --chown=user --chmod=640 ["a b","*.txt","/data/"]',
    'ENV GREETING="say \\"hi\\" for \\$5 \\\\o/"',
    'ENV EMPTY=""',
    "WORKDIR /app",
    "USER user",
    `RUN ["/bin/sh","-c","echo 'one'\\necho two"]`,
    "USER root",
    'RUN --mount=type=cache,target=/root/.cache/pip ["pip","install","numpy"]',
    "USER user",
  ]);
  assert.deepEqual(recipe.sources, ["app", "a b", "*.txt"]);
  const common = Template("node-22").env({ A: "1" });
  assert.notEqual(common.run("one").dockerfile, common.run("two").dockerfile);
});

test("a program that runs already", () => {
  for (const [ready, wire] of [
    [8000, { port: 8000 }],
    ["http://localhost:8000/health", { url: "http://localhost:8000/health" }],
    ["/tmp/ready", { file: "/tmp/ready" }],
    ["test -e /tmp/ready", { command: "test -e /tmp/ready" }],
    [{ command: "/usr/bin/check" }, { command: "/usr/bin/check" }],
  ] as const) {
    assert.deepEqual(Template("base").start("serve", { ready, cwd: "/app" }).started, { command: "serve", ready: wire, cwd: "/app" });
  }
});

test("steps that cannot be", () => {
  const t = Template("base");
  for (const step of [
    () => t.apt(),
    () => t.pip(""),
    () => t.run(""),
    () => t.copy([], "/x"),
    () => t.user("two words"),
    () => t.workdir("two\nlines"),
    () => t.env({ "A B": "x" }),
    () => t.env({ A: "two\nlines" }),
    () => t.start(""),
    () => Template("two words"),
  ]) {
    assert.throws(step, InvalidArgumentError);
  }
});

test("what is ignored", async () => {
  const cases = JSON.parse(await readFile(join(repository, "test/vectors/testdata/dockerignore.json"), "utf8")) as { ignore: string; paths: string[]; ignored: string[] }[];
  for (const { ignore, paths, ignored } of cases) {
    const rules = new Ignored(ignore);
    assert.deepEqual(paths.filter((path) => rules.has(path)), ignored, ignore);
  }
  assert.throws(() => new Ignored("[z-a]\n"), InvalidArgumentError);
});

test("what is sent", async (t) => {
  const at = await folder(t, ["app/main.py", "app/x.log", "data/one.txt", "data/deep/two.txt", "out/kept/f", "out/f", "a.txt"]);
  await symlink("main.py", join(at, "app/link"));
  await writeFile(join(at, ".dockerignore"), "**/*.log\nout\n!out/kept\n");
  const everything = [".dockerignore", "a.txt", "app", "app/link", "app/main.py", "data", "data/deep", "data/deep/two.txt", "data/one.txt", "out/kept", "out/kept/f"];
  assert.deepEqual(await names(packContext(at, "Dockerfile")), everything);
  assert.deepEqual(await names(packContext(at, "Dockerfile", ["/data/*/two.txt", "./a.*"])), everything);
  assert.deepEqual(await names(packContext(at, "Dockerfile", ["app"])), [".dockerignore", "app", "app/link", "app/main.py"]);
  await writeFile(join(at, "D.dockerignore"), "*\n!a.txt\n");
  assert.deepEqual(await names(packContext(at, "D")), [".dockerignore", "D.dockerignore", "a.txt"]);
  await assert.rejects(names(packContext(join(at, "a.txt"), "Dockerfile")), InvalidArgumentError);
});

test("a recipe is built and followed", async (t) => {
  const at = await folder(t, ["app/main.py", "other"]);
  await using fake = await FakeServer.start();
  const build = { id: "bld_1", name: "mine", state: "running", steps: 2, done: 0, cached: 0, created_at: "2026-01-02T03:04:05Z" };
  const [first, second] = [{ step: "[1/2] RUN" }, { step: "[2/2] RUN" }];
  const done = { step: "done", template: { name: "mine", digest: "sha256:x", size_bytes: 7, created_at: "2026-01-02T03:04:05Z" } };
  fake
    .on("POST /v1/templates/contexts", json({ id: "ctx_1", files: 1, size_bytes: 1 }, 201))
    .on("POST /v1/templates/builds", json(build, 201))
    .on("GET /v1/templates/builds/bld_1", json(build))
    .on("GET /v1/templates/builds/bld_1/logs", brokenEvents(first), events(second, done));
  const recipe = Template("python-3.12").copy("app", "/app").start("serve", { ready: 8000, timeoutSeconds: 5, memoryMb: 256 });
  const steps: string[] = [];
  const template = await fake.client().templates.build(
    { name: "mine", recipe, context: at, network: "open", secrets: { key: "v" }, args: { someArg: "x" }, memoryMb: 1024, noCache: true, shellOnFailure: true },
    { onProgress: (event) => steps.push(event.step) },
  );
  assert.deepEqual([template.sizeBytes, steps], [7, ["[1/2] RUN", "[2/2] RUN", "done"]]);
  assert.deepEqual(fake.requests("GET /v1/templates/builds/bld_1/logs").map((seen) => seen.query.get("from")), ["0", "1"]);
  assert.deepEqual(fake.requests("POST /v1/templates/builds")[0]?.json, {
    name: "mine",
    dockerfile: recipe.dockerfile,
    context_id: "ctx_1",
    start: { command: "serve", ready: { port: 8000 }, timeout_seconds: 5, memory_mb: 256 },
    network: "open",
    secrets: [{ id: "key", value: "v" }],
    args: { someArg: "x" },
    memory_mb: 1024,
    no_cache: true,
    shell_on_failure: true,
  });
  const sent = fake.requests("POST /v1/templates/contexts")[0]?.body ?? Buffer.alloc(0);
  assert.deepEqual(await names((async function* () { yield sent; })()), ["app", "app/main.py"]);
});

test("the files of a build may be in memory, or in a tar", async () => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/templates/contexts", json({ id: "ctx_1", files: 1, size_bytes: 1 }, 201)).on("POST /v1/templates/builds", json({ id: "bld_1", name: "mine", state: "running" }, 201));
  const { templates } = fake.client();
  const file = (text: string): Blob => new Blob([text]);
  const context = { Dockerfile: file("FROM scratch"), ".dockerignore": file("logs\nDockerfile\n"), "logs/a": file("x"), [`src/${"é".repeat(80)}`]: file("long"), "src/main.py": file("y".repeat(600)) };
  await templates.startBuild({ name: "mine", context });
  const tar = new Blob(["the bytes of a tar"]);
  await templates.startBuild({ name: "mine", dockerfile: "FROM scratch", context: tar });
  const [packed, whole] = fake.requests("POST /v1/templates/contexts").map((seen) => seen.body);
  assert.deepEqual(await names((async function* () { yield packed!; })()), [".dockerignore", "Dockerfile", "src/main.py", `src/${"é".repeat(80)}`]);
  assert.equal(String(whole), "the bytes of a tar");
});

test("builds that fail and that are cancelled", async () => {
  await using fake = await FakeServer.start();
  const failed = { id: "bld_1", name: "mine", state: "failed", code: "template_invalid", error: "line 2: exit 3", hint: "Mend it.", steps: 1, done: 0, cached: 0, created_at: "2026-01-02T03:04:05Z" };
  const cancelled = { ...failed, state: "cancelled" };
  fake
    .on("POST /v1/templates/builds", json(failed, 201))
    .on("GET /v1/templates/builds", json({ items: [failed] }))
    .on("GET /v1/templates/builds/bld_1", json(failed), json(failed), json(cancelled))
    .on("DELETE /v1/templates/builds/bld_1", json(cancelled))
    .on("GET /v1/templates/builds/bld_1/logs", events({ step: "RUN", error: "line 2: exit 3" }));
  const { templates } = fake.client();
  await assert.rejects(templates.build({ name: "mine", dockerfile: "FROM scratch\n" }), (error) => error instanceof InvalidArgumentError && error.hint === "Mend it.");
  assert.deepEqual((await templates.builds()).map((build) => build.state), ["failed"]);
  assert.equal((await templates.getBuild("bld_1")).error, "line 2: exit 3");
  assert.equal((await templates.cancelBuild("bld_1")).state, "cancelled");
  await assert.rejects(templates.waitForBuild("bld_1"), ConflictError);
  await assert.rejects(templates.build({ name: "mine", dockerfile: "FROM x", recipe: Template("y") }), InvalidArgumentError);
  await assert.rejects(templates.build({ name: "mine", image: "x", recipe: Template("y") } as never), InvalidArgumentError);
});
