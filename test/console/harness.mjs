// A real server and a browser, for the console's tests and its benchmark.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

export const require = createRequire(new URL("../../console/package.json", import.meta.url));
const { chromium } = require("playwright-core");
export const { CONSOLE_WORK: work, CONSOLE_BOTHY: bothy } = process.env;

/** The server, once it runs: its address, the first key, and its process. */
export const at = { url: "", admin: "", process: undefined };

export async function serve(listen, env = { BOTHY_POOL: "off" }) {
  const log = `${work}/log`;
  writeFileSync(log, "");
  const out = openSync(log, "a");
  at.process = spawn(bothy, ["serve", "--listen", listen, "--bootstrap-credentials", `${work}/credentials.json`],
    { stdio: ["ignore", out, out], env: { ...process.env, BOTHY_HOME: `${work}/home`, ...env } });
  writeFileSync(`${work}/pid`, String(at.process.pid));
  const end = Date.now() + 60_000;
  while (!readFileSync(log, "utf8").includes("msg=ready")) {
    assert.ok(Date.now() < end && at.process.exitCode === null, readFileSync(log, "utf8"));
    await new Promise((r) => setTimeout(r, 50));
  }
  ({ url: at.url, api_key: at.admin } = JSON.parse(readFileSync(`${work}/credentials.json`, "utf8")));
}

export async function stop(signal = "SIGTERM") {
  const gone = new Promise((r) => at.process.once("exit", r));
  at.process.kill(signal);
  await gone;
}

export async function call(key, method, path, body) {
  const answer = await fetch(at.url + path, { method, headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

export async function endAll() {
  const { items } = await call(at.admin, "GET", "/v1/sandboxes?limit=1000&state=starting,running,pausing,paused,resuming");
  const some = async () => {
    for (let s = items.pop(); s; s = items.pop()) await call(at.admin, "DELETE", `/v1/sandboxes/${s.id}`);
  };
  await Promise.all(Array.from({ length: 8 }, some));
}

export const openBrowser = () => chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** A visitor of their own, who has logged in where there is a key. */
export async function visit(browser, key, path = "sandboxes", from = at.url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const p = await context.newPage();
  p.setDefaultTimeout(20_000);
  p.on("dialog", (d) => (d.type() === "confirm" ? d.accept() : d.dismiss()));
  await p.goto(`${from}/console/${path}`);
  if (key) {
    await p.getByLabel("API key").fill(key);
    await p.getByRole("button", { name: "Log in" }).click();
    await p.getByRole("button", { name: "Log out" }).waitFor();
  }
  return p;
}
