/**
 * What differs between JavaScript runtimes.
 *
 * @module
 * @internal
 */
import { UnsupportedError } from "./errors.js";

/**
 * Loads one of Node's own modules, or returns undefined where there is none.
 * The name is a variable so that bundlers for browsers leave the import alone.
 */
export async function nodeModule<T>(name: string): Promise<T | undefined> {
  if (!globalThis.process?.versions?.node) return undefined;
  try {
    return (await import(/* webpackIgnore: true */ /* @vite-ignore */ name)) as T;
  } catch {
    return undefined;
  }
}

/** Loads one of Node's own modules, or throws saying what needs it. */
export async function requireNodeModule<T>(name: string, what: string): Promise<T> {
  const loaded = await nodeModule<T>(name);
  if (loaded) return loaded;
  throw new UnsupportedError({
    code: "unsupported",
    detail: `${what} needs ${name}, which this JavaScript runtime does not have.`,
    hint: "Use Node.js, or a call that needs only fetch.",
  });
}

let patient: object | undefined;

/**
 * Returns fetch options that switch off the time-outs built into Node's fetch:
 * five minutes until the first header and five between two chunks, which a long
 * command exceeds. A dispatcher that the program has set itself (a proxy) is
 * left in charge.
 */
export function patientFetchOptions(): object {
  const current = (globalThis as Record<symbol, unknown>)[Symbol.for("undici.globalDispatcher.1")];
  if (current?.constructor?.name !== "Agent") return {};
  const Agent = current.constructor as new (options: object) => object;
  patient ??= new Agent({ headersTimeout: 0, bodyTimeout: 0 });
  return { dispatcher: patient };
}
