import { createRequire } from "node:module";

/** The versions of `ai` that the tests have run with: from the first of each pair to the last. */
const tested = [
  ["6.0.326", "6.0.326"],
  ["7.0.173", "7.0.173"],
] as const;

let told = false;

/** Says once, as a warning of the process, that the installed version of `ai` was not tested. */
export function checkVersion(version = installed()): void {
  if (told || version === undefined) return;
  if (tested.some(([first, last]) => compare(first, version) <= 0 && compare(version, last) <= 0)) return;
  told = true;
  const known = tested.map(([first, last]) => (first === last ? first : `${first} to ${last}`)).join(" and ");
  process.emitWarning(`bothy-ai-sdk was tested with ai ${known}, not with ${version}. It may work.`, { code: "BOTHY_UNTESTED_VERSION" });
}

function installed(): string | undefined {
  try {
    return (createRequire(import.meta.url)("ai/package.json") as { version: string }).version;
  } catch {
    return undefined; // a bundle, which has no package.json
  }
}

function compare(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}
