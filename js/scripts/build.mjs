// Builds dist/esm and dist/cjs from src with two runs of tsc, and marks each
// folder with its module kind.
//
// With --if-needed (npm's `prepare`) nothing happens when dist is newer than
// src. npm does not install the development dependencies of a folder that is
// linked from outside, so the compiler is then fetched first, as the lock file
// pins it.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const kinds = { esm: "module", cjs: "commonjs" };

function newest(folder) {
  return Math.max(...readdirSync(folder).map((name) => statSync(join(folder, name)).mtimeMs));
}

function isBuilt() {
  return Object.keys(kinds).every((kind) => {
    const marker = join(root, "dist", kind, "package.json");
    return existsSync(marker) && statSync(marker).mtimeMs >= newest(join(root, "src"));
  });
}

function compiler() {
  return createRequire(join(root, "package.json")).resolve("typescript/bin/tsc");
}

function fetchCompiler() {
  try {
    return compiler();
  } catch {
    execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: root, stdio: "inherit" });
    return compiler();
  }
}

function build(tsc) {
  for (const [kind, type] of Object.entries(kinds)) {
    const out = join(root, "dist", kind);
    rmSync(out, { recursive: true, force: true });
    execFileSync(process.execPath, [tsc, "-p", join(root, `tsconfig.${kind}.json`)], { cwd: root, stdio: "inherit" });
    mkdirSync(out, { recursive: true });
    writeFileSync(join(out, "package.json"), `${JSON.stringify({ type, sideEffects: false })}\n`);
  }
}

if (!process.argv.includes("--if-needed") || !isBuilt()) {
  build(fetchCompiler());
}
