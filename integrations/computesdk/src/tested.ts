import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** The version of `@computesdk/provider` that the tests have run with. */
const tested = "2.1.5";

let told = false;

/** Says once, as a warning of the process, that the installed version of `@computesdk/provider` was not tested. */
export function checkVersion(version = installed()): void {
  if (told || version === undefined || version === tested) return;
  told = true;
  process.emitWarning(`bothy-computesdk was tested with @computesdk/provider ${tested}, not with ${version}. It may work.`, { code: "BOTHY_UNTESTED_VERSION" });
}

function installed(): string | undefined {
  try {
    // The package exports no package.json, which lies above its dist folder.
    const entry = createRequire(import.meta.url).resolve("@computesdk/provider");
    return (JSON.parse(readFileSync(join(dirname(entry), "..", "package.json"), "utf8")) as { version?: string }).version;
  } catch {
    return undefined; // a bundle, which has no package.json
  }
}
