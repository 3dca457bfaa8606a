import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { Bothy, CredentialsError, type BothyError } from "bothy";
import { findCredentials } from "#internal/config.js";

const names = ["HOME", "XDG_CONFIG_HOME", "BOTHY_URL", "BOTHY_API_KEY", "BOTHY_PROFILE"] as const;
const before = Object.fromEntries(names.map((name) => [name, process.env[name]]));
let home = "";

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "bothy-home-"));
  process.env.HOME = home;
  delete process.env.XDG_CONFIG_HOME;
  delete process.env.BOTHY_URL;
  delete process.env.BOTHY_API_KEY;
  delete process.env.BOTHY_PROFILE;
});

afterEach(async () => {
  for (const name of names) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
  await rm(home, { recursive: true });
});

async function store(content: string): Promise<void> {
  await mkdir(join(home, ".config/bothy"), { recursive: true });
  await writeFile(join(home, ".config/bothy/credentials.json"), content, { mode: 0o600 });
}

test("options win over the environment, and the environment over the file", async () => {
  await store('{"url":"http://file:1","api_key":"bothy_file"}');
  assert.deepEqual(await findCredentials({}), { url: "http://file:1", apiKey: "bothy_file" });
  process.env.BOTHY_URL = "http://env:2/";
  process.env.BOTHY_API_KEY = "bothy_env";
  assert.deepEqual(await findCredentials({}), { url: "http://env:2", apiKey: "bothy_env" });
  assert.deepEqual(await findCredentials({ url: "http://option:3", apiKey: "bothy_option" }), { url: "http://option:3", apiKey: "bothy_option" });
  assert.deepEqual(await findCredentials({ url: "http://option:3" }), { url: "http://option:3", apiKey: "bothy_env" });
});

test("BOTHY_PROFILE names the file of another server", async () => {
  await store('{"url":"http://file:1","api_key":"bothy_file"}');
  await mkdir(join(home, ".config/bothy/profiles"));
  await writeFile(join(home, ".config/bothy/profiles/work.json"), '{"url":"https://work.test","api_key":"bothy_work"}');
  process.env.BOTHY_PROFILE = "work";
  assert.deepEqual(await findCredentials({}), { url: "https://work.test", apiKey: "bothy_work" });
  for (const name of ["other", "../credentials"]) {
    process.env.BOTHY_PROFILE = name;
    await assert.rejects(findCredentials({}), /there is no profile/);
  }
});

test("XDG_CONFIG_HOME is where the file is, and ~/.config does not overrule it", async () => {
  await store('{"url":"http://home:1","api_key":"bothy_home"}');
  process.env.XDG_CONFIG_HOME = join(home, "xdg");
  await assert.rejects(findCredentials({}), CredentialsError);
  await mkdir(join(home, "xdg/bothy"), { recursive: true });
  await writeFile(join(home, "xdg/bothy/credentials.json"), '{"url":"http://xdg:1","api_key":"bothy_xdg"}');
  assert.equal((await findCredentials({})).apiKey, "bothy_xdg");
  process.env.XDG_CONFIG_HOME = "xdg";
  assert.equal((await findCredentials({})).apiKey, "bothy_home");
});

test("the file's key goes only to the file's server", async () => {
  await store('{"url":"http://file:1","api_key":"bothy_file"}');
  await assert.rejects(findCredentials({ url: "http://other:1" }), CredentialsError);
  assert.equal((await findCredentials({ url: "http://file:1/" })).apiKey, "bothy_file");
});

test("a key without an address goes to the file's server, or to this machine", async () => {
  assert.deepEqual(await findCredentials({ apiKey: "bothy_x" }), { url: "http://127.0.0.1:7700", apiKey: "bothy_x" });
  await store('{"url":"http://file:1","api_key":"bothy_file"}');
  assert.deepEqual(await findCredentials({ apiKey: "bothy_x" }), { url: "http://file:1", apiKey: "bothy_x" });
});

test("an address may lack its scheme", async () => {
  assert.equal((await findCredentials({ url: "localhost:7700", apiKey: "k" })).url, "http://localhost:7700");
});

test("missing credentials say what to do", async () => {
  await assert.rejects(new Bothy().limits(), (error: BothyError) => {
    assert.ok(error instanceof CredentialsError);
    assert.equal(error.code, "no_credentials");
    assert.match(String(error.hint), /bothy up/);
    return true;
  });
});

test("a client that found no credentials finds them later", async () => {
  const client = new Bothy({ url: "http://127.0.0.1:1", maxRetries: 0 });
  await assert.rejects(client.limits(), CredentialsError);
  process.env.BOTHY_API_KEY = "bothy_env";
  await assert.rejects(client.limits(), { code: "connection_failed" });
});

test("a file or an address that cannot be understood says so", async () => {
  await assert.rejects(findCredentials({ url: "ftp://x", apiKey: "k" }), /"ftp:\/\/x" is not an http or https URL/);
  await store("{oops");
  await assert.rejects(findCredentials({}), /credentials\.json is not valid JSON/);
});
