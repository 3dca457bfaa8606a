import { createRequire } from "node:module";

/** The version of `@ai-sdk/harness` that the tests have run with. */
const tested = "1.0.122";

let told = false;

/** Says once, as a warning of the process, that the installed version of `@ai-sdk/harness` was not tested. */
export function checkVersion(version = installed()): void {
  if (told || version === undefined || version === tested) return;
  told = true;
  process.emitWarning(`bothy-ai-sdk-harness was tested with @ai-sdk/harness ${tested}, not with ${version}. It may work.`, { code: "BOTHY_UNTESTED_VERSION" });
}

function installed(): string | undefined {
  try {
    return (createRequire(import.meta.url)("@ai-sdk/harness/package.json") as { version: string }).version;
  } catch {
    return undefined; // a bundle, which has no package.json
  }
}
