import { createRequire } from "node:module";

/** The version of deepagents that the tests have run with. */
const tested = "1.14.1";

let told = false;

/** Says once, as a warning of the process, that the installed version of deepagents was not tested. */
export function checkVersion(version = installed()): void {
  if (told || version === undefined || version === tested) return;
  told = true;
  process.emitWarning(`bothy-deepagents was tested with deepagents ${tested}, not with ${version}. It may work.`, { code: "BOTHY_UNTESTED_VERSION" });
}

function installed(): string | undefined {
  try {
    return (createRequire(import.meta.url)("deepagents/package.json") as { version: string }).version;
  } catch {
    return undefined; // a bundle, which has no package.json
  }
}
