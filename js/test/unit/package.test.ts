import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import * as esm from "bothy";
import ts from "typescript";
import { FakeServer, json, sandbox } from "./fake.js";

const run = promisify(execFile);
const root = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const require = createRequire(import.meta.url);

interface Manifest {
  version: string;
  dependencies?: object;
  devDependencies: Record<string, string>;
  files: string[];
  exports: { ".": Record<"import" | "require", { types: string; default: string }> };
}

async function manifest(): Promise<Manifest> {
  return JSON.parse(await readFile(join(root, "package.json"), "utf8")) as Manifest;
}

/** A project that has this package installed. */
async function project(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "bothy-user-"));
  t.after(() => rm(path, { recursive: true }));
  await mkdir(join(path, "node_modules"));
  await symlink(root, join(path, "node_modules/bothy"));
  return path;
}

test("import and require give the same names, and both work", async (t) => {
  const cjs = require("bothy") as typeof esm;
  assert.deepEqual(Object.keys(cjs).sort(), Object.keys(esm).sort());
  const path = await project(t);
  await writeFile(join(path, "a.mjs"), 'import { Sandbox, BothyError } from "bothy"; console.log(typeof Sandbox.create, new BothyError({ code: "c", detail: "d" }).name);');
  await writeFile(join(path, "a.cjs"), 'const { Sandbox, BothyError } = require("bothy"); console.log(typeof Sandbox.create, new BothyError({ code: "c", detail: "d" }).name);');
  for (const file of ["a.mjs", "a.cjs"]) assert.equal((await run(process.execPath, [file], { cwd: path })).stdout, "function BothyError\n");
});

test("a CommonJS program that has no credentials is told so", async (t) => {
  const path = await project(t);
  await writeFile(join(path, "a.cjs"), 'require("bothy").Sandbox.create().catch((error) => console.log(error.code, error.hint));');
  const env = { PATH: process.env.PATH, HOME: path };
  assert.match((await run(process.execPath, ["a.cjs"], { cwd: path, env })).stdout, /^no_credentials Run `bothy up`/);
});

test("where there is only fetch, all works but what needs Node's own modules, which says so", async (t) => {
  await using fake = await FakeServer.start();
  fake.on("POST /v1/sandboxes", json(sandbox(), 201)).on("POST /v1/sandboxes/sbx_1/exec", json({ exit_code: 0, stdout: "hi", stderr: "", duration_ms: 1, pid: 1 }));
  const path = await project(t);
  const script = `
    const print = console.log;
    globalThis.process = undefined;
    const { Sandbox } = await import("bothy");
    const sbx = await Sandbox.create({ url: "${fake.url}", apiKey: "bothy_test" });
    print((await sbx.exec("echo hi")).stdout);
    for (const call of [() => sbx.terminal(), () => sbx.forward(80), () => sbx.files.upload("a", "b")]) await call().catch((error) => print(error.code, error.detail));
    await Sandbox.create().catch((error) => print(error.code));
  `;
  await writeFile(join(path, "a.mjs"), script);
  const { stdout } = await run(process.execPath, ["a.mjs"], { cwd: path });
  assert.match(stdout, /^hi\nunsupported a terminal needs node:http.*\nunsupported forwarding a port needs node:net.*\nunsupported moving local files needs node:fs.*\nno_credentials\n$/);
});

const program = `
import { Sandbox, type ExecResult, SandboxPausedError, type Network } from "bothy";
export async function main(): Promise<string> {
  await using sbx = await Sandbox.create({ template: "node-22", network: { mode: "restricted", allowDomains: ["*.example.org"] } });
  const result: ExecResult = await sbx.exec("true", { onStdout: (text) => console.log(text.length) });
  const network: Network = "open";
  await sbx.setNetwork(network);
  for await (const event of sbx.execStream(["ls"])) if (event.isFinal) return String(event.exitCode);
  for await (const other of Sandbox.list({ state: "running" })) console.log(other.id);
  const { items } = await Sandbox.list();
  if (items[0] instanceof SandboxPausedError) throw new Error();
  // @ts-expect-error a wrong word is refused
  await Sandbox.create({ network: "sometimes" });
  // @ts-expect-error a misspelt option is refused
  await sbx.exec("true", { timeout_seconds: 1 });
  return result.stdout;
}
`;

const libraries = new Map<string, ts.SourceFile | undefined>();

/** Returns what the compiler finds wrong. The standard library is parsed once for all. */
function complaints(files: string[], options: ts.CompilerOptions): string[] {
  const all: ts.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipDefaultLibCheck: true,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts", "lib.dom.asynciterable.d.ts"],
    ...options,
  };
  const host = ts.createCompilerHost(all);
  const read = host.getSourceFile.bind(host);
  host.getSourceFile = (name, ...rest) => {
    if (!name.includes("/typescript/lib/")) return read(name, ...rest);
    if (!libraries.has(name)) libraries.set(name, read(name, ...rest));
    return libraries.get(name);
  };
  const found = ts.getPreEmitDiagnostics(ts.createProgram(files, all, host));
  return found.map(({ file, messageText }) => `${file?.fileName.split("/").pop()}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}

for (const [module, moduleResolution, file] of [
  ["NodeNext", "NodeNext", "main.mts"],
  ["NodeNext", "NodeNext", "main.cts"],
  ["ESNext", "Bundler", "main.ts"],
  ["CommonJS", "Node10", "main.ts"],
] as const) {
  test(`the types are found by ${moduleResolution} from ${file} as ${module}, without Node's own types`, async (t) => {
    const path = join(await project(t), file);
    await writeFile(path, program);
    assert.deepEqual(complaints([path], { types: [], module: ts.ModuleKind[module], moduleResolution: ts.ModuleResolutionKind[moduleResolution] }), []);
  });
}

test("each kind of module has types of its own kind", async () => {
  const { exports } = await manifest();
  for (const [condition, kind] of [["import", "module"], ["require", "commonjs"]] as const) {
    const { types, default: code } = exports["."][condition];
    assert.equal(dirname(types), dirname(code));
    const marker = JSON.parse(await readFile(join(root, dirname(code), "package.json"), "utf8")) as { type: string };
    assert.equal(marker.type, kind);
    const text = await readFile(join(root, code), "utf8");
    assert.equal(/^exports\.|require\(/m.test(text), kind === "commonjs");
  }
});

test("the package has no dependencies, and the version is the same everywhere", async () => {
  const { version, dependencies, devDependencies } = await manifest();
  assert.equal(dependencies, undefined);
  assert.equal(version, esm.VERSION);
  for (const pinned of Object.values(devDependencies)) assert.match(pinned, /^\d+\.\d+\.\d+$/);
});

test("the lock file names no server", async () => {
  const lock = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8")) as { version: string; packages: Record<string, { resolved?: string; integrity?: string }> };
  assert.equal(lock.version, esm.VERSION);
  for (const [name, entry] of Object.entries(lock.packages)) {
    assert.equal(entry.resolved, undefined, name);
    assert.ok(name === "" || entry.integrity, name);
  }
});

test("what is published is what is needed", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const paths = files.map((file) => file.path);
  for (const needed of ["README.md", "LICENSE", "dist/esm/index.js", "dist/esm/index.d.ts", "dist/cjs/index.js", "dist/cjs/index.d.ts", "dist/cjs/package.json"]) assert.ok(paths.includes(needed), needed);
  assert.deepEqual(paths.filter((path) => /test|node_modules|tsconfig/.test(path)), []);
});

/** Returns the public declarations that have no comment. */
function undocumented(program: ts.Program, entry: string): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  assert.ok(source);
  const missing: string[] = [];
  const look = (symbol: ts.Symbol, name: string): void => {
    if (symbol.getDocumentationComment(checker).length === 0) missing.push(name);
  };
  for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(source) as ts.Symbol)) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    look(symbol, symbol.name);
    const declaration = symbol.valueDeclaration;
    if (!declaration || !ts.isClassDeclaration(declaration)) continue;
    for (const member of declaration.members) {
      const name = member.name;
      const hidden = ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Private;
      if (!name || ts.isPrivateIdentifier(name) || hidden) continue;
      const inner = checker.getSymbolAtLocation(name);
      if (inner) look(inner, `${symbol.name}.${name.getText()}`);
    }
  }
  return missing;
}

test("every public name says what it is for", () => {
  const entry = join(root, "src/index.ts");
  const program = ts.createProgram([entry], { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, types: ["node"] });
  assert.deepEqual(undocumented(program, entry), []);
});

test("the examples of the README are programs", async (t) => {
  const path = await project(t);
  const readme = await readFile(join(root, "README.md"), "utf8");
  const examples = [...readme.matchAll(/```(?:ts|js)\n([\s\S]*?)```/g)].map((match) => match[1] as string);
  assert.ok(examples.length >= 8);
  const files = await Promise.all(
    examples.map(async (example, i) => {
      const file = join(path, `example${i}.mts`);
      // Most examples continue from the ones before, where sbx is made and names are imported.
      const own = [...example.matchAll(/import \{([^}]*)\} from "bothy"/g)].flatMap((match) => (match[1] as string).split(",").map((name) => name.trim()));
      const names = ["Bothy", "Sandbox", "SandboxPausedError", "QuotaExceededError"].filter((name) => !own.includes(name));
      const declared = /(?:const|using) sbx\b/.test(example) ? "" : 'declare const sbx: import("bothy").Sandbox;\n';
      await writeFile(file, `import { ${names.join(", ")} } from "bothy";\n${declared}${example}\nexport {};\n`);
      return file;
    }),
  );
  const options = { typeRoots: [join(root, "node_modules/@types")], types: ["node"], module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
  assert.deepEqual(complaints(files, options), []);
});

test("nothing of a test run is left in the source folder", async () => {
  assert.deepEqual((await readdir(join(root, "src"))).filter((name) => !name.endsWith(".ts")), []);
});

test("the examples of the API document are programs", async (t) => {
  interface Document { paths: Record<string, Record<string, { operationId: string; "x-codeSamples": { label: string; source: string }[] }>> }
  const { paths } = JSON.parse(await readFile(join(root, "../api/openapi.json"), "utf8")) as Document;
  const path = await project(t);
  await mkdir(join(path, "node_modules/@types"));
  await symlink(join(root, "node_modules/@types/node"), join(path, "node_modules/@types/node"));
  const operations = Object.values(paths).flatMap((item) => Object.values(item));
  assert.ok(operations.length > 50);
  const files = await Promise.all(
    operations.map(async ({ operationId, "x-codeSamples": samples }) => {
      const file = join(path, `${operationId}.mts`);
      await writeFile(file, samples.find(({ label }) => label === "JavaScript")?.source ?? assert.fail(operationId));
      return file;
    }),
  );
  assert.deepEqual(complaints(files, { types: ["node"], typeRoots: [join(path, "node_modules/@types")], module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext }), []);
});
