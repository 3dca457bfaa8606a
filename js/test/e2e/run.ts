// Runs the end-to-end tests against the server of BOTHY_URL and BOTHY_API_KEY,
// or else against one that it starts. Without BOTHY_E2E=1 it runs nothing.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Access, Server } from "./server.js";

const here = dirname(fileURLToPath(import.meta.url));

async function runTests({ url, apiKey }: Access): Promise<number> {
  const wanted = process.argv.slice(2);
  const files = readdirSync(here).filter((name) => name.endsWith(".test.js") && (wanted.length === 0 || wanted.some((part) => name.includes(part))));
  // Not spawnSync: this process must continue reading the server's log.
  const run = spawn(process.execPath, ["--test", "--test-reporter=spec", "--test-concurrency=2", "--test-timeout=300000", ...files.map((name) => join(here, name))], {
    stdio: "inherit",
    env: { ...process.env, BOTHY_URL: url, BOTHY_API_KEY: apiKey },
  });
  // So that a stopped test run does not leave its server behind.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => run.kill(signal));
  const [code] = (await once(run, "exit")) as [number | null];
  return code ?? 1;
}

async function main(): Promise<number> {
  if (process.env.BOTHY_E2E !== "1") {
    console.log("The end-to-end tests were not run: they need a server. Set BOTHY_E2E=1 to run them.");
    return 0;
  }
  const { BOTHY_URL: url, BOTHY_API_KEY: apiKey } = process.env;
  if (url && apiKey) return runTests({ url, apiKey });
  await using server = await Server.start();
  return await runTests(server.access);
}

process.exitCode = await main();
