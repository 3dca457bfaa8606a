/**
 * Where the address and the key of the server come from.
 *
 * @module
 * @internal
 */
import { CredentialsError } from "./errors.js";
import { nodeModule } from "./runtime.js";

/** The address and the key of a server. */
export interface Credentials {
  url: string;
  apiKey: string;
}

/** Where `bothy serve` listens by default. */
const defaultUrl = "http://127.0.0.1:7700";

function environment(name: string): string | undefined {
  return globalThis.process?.env?.[name] || undefined;
}

async function credentialsFile(): Promise<{ path: string; text: string } | undefined> {
  const fs = await nodeModule<typeof import("node:fs/promises")>("node:fs/promises");
  const os = await nodeModule<typeof import("node:os")>("node:os");
  if (!fs || !os) return undefined;
  const xdg = environment("XDG_CONFIG_HOME");
  // A relative path counts as none, as the specification of the variable has it.
  const folder = xdg?.startsWith("/") ? xdg : `${os.homedir()}/.config`;
  const profile = environment("BOTHY_PROFILE");
  if (profile && !/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(profile)) throw noProfile(profile);
  const path = `${folder}/bothy/${profile ? `profiles/${profile}` : "credentials"}.json`;
  try {
    return { path, text: await fs.readFile(path, "utf8") };
  } catch {
    if (profile) throw noProfile(profile);
    return undefined;
  }
}

function parseCredentials(path: string, text: string): Partial<Credentials> {
  try {
    const value = JSON.parse(text) as { url?: string; api_key?: string };
    return { url: value.url, apiKey: value.api_key };
  } catch (cause) {
    throw new CredentialsError({
      code: "no_credentials",
      detail: `the credentials file ${path} is not valid JSON.`,
      hint: "Run `bothy up` to write it again.",
      cause,
    });
  }
}

function checkUrl(given: string): string {
  const url = given.includes("://") ? given : `http://${given}`;
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
    throw new CredentialsError({
      code: "no_credentials",
      detail: `the server's address ${JSON.stringify(url)} is not an http or https URL.`,
      hint: "Set BOTHY_URL to something like http://127.0.0.1:7700.",
    });
  }
  return url.replace(/\/+$/, "");
}

const noProfile = (name: string) => new CredentialsError({ code: "no_credentials", detail: `there is no profile ${JSON.stringify(name)}.`, hint: "`bothy profile ls` lists those of BOTHY_PROFILE." });

function missing(): CredentialsError {
  return new CredentialsError({
    code: "no_credentials",
    detail: `no API key was found in the options, in BOTHY_API_KEY, or in ~/.config/bothy/credentials.json.`,
    hint: "Run `bothy up` on this machine, or set BOTHY_URL and BOTHY_API_KEY.",
  });
}

/**
 * Finds the credentials: explicit options first, then the environment, then the
 * file of the profile that BOTHY_PROFILE names, or else that `bothy up` writes. The file's key is used only with the file's URL,
 * so that a key never travels to another server than its own.
 */
export async function findCredentials(options: Partial<Credentials>): Promise<Credentials> {
  const url = options.url ?? environment("BOTHY_URL");
  const apiKey = options.apiKey ?? environment("BOTHY_API_KEY");
  if (url && apiKey) return { url: checkUrl(url), apiKey };
  const file = await credentialsFile();
  const stored = file ? parseCredentials(file.path, file.text) : {};
  const found = { url: url ?? stored.url, apiKey: apiKey ?? (sameServer(url, stored.url) ? stored.apiKey : undefined) };
  if (!found.apiKey) throw missing();
  return { url: checkUrl(found.url ?? defaultUrl), apiKey: found.apiKey };
}

function sameServer(chosen: string | undefined, stored: string | undefined): boolean {
  return chosen === undefined || chosen.replace(/\/+$/, "") === stored?.replace(/\/+$/, "");
}
