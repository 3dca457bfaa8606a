import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const out = join(import.meta.dirname, "embed");

/** Leaves the built files compressed, as the program embeds them. */
const pack = {
  name: "pack",
  buildStart() {
    for (const name of readdirSync(out)) if (name !== ".gitkeep") rmSync(join(out, name), { recursive: true });
  },
  closeBundle() {
    for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      if (!entry.isFile() || entry.name === ".gitkeep") continue;
      writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      rmSync(path);
    }
  },
};

export default defineConfig({
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  resolve: { alias: { bothy: join(import.meta.dirname, "../js/src/index.ts") } },
  build: { outDir: out, emptyOutDir: false, assetsInlineLimit: 0, target: "es2022", modulePreload: { polyfill: false } },
  plugins: [pack],
});
