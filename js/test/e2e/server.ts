import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Bothy } from "bothy";

/** Where a server is and which key opens it. */
export interface Access {
  url: string;
  apiKey: string;
}

const repository = dirname(dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url))))));

/** The server's program. */
function program(): string {
  const binary = process.env.BOTHY_BIN ?? join(repository, "bin/bothy");
  if (!existsSync(binary)) throw new Error(`there is no server to test against: ${binary} does not exist. Run \`make build\`, or set BOTHY_URL and BOTHY_API_KEY.`);
  return binary;
}

/** A server of a test alone, with a home of its own. */
export class Server implements AsyncDisposable {
  /** Where it is. The address stays the same over a restart. */
  readonly access: Access;
  readonly #home: string;
  #process: ChildProcess;

  private constructor(access: Access, home: string, process: ChildProcess) {
    this.access = access;
    this.#home = home;
    this.#process = process;
  }

  /** Starts bin/bothy (or BOTHY_BIN) on a free port, with links to the templates of BOTHY_TEMPLATES or of the default home. */
  static async start(): Promise<Server> {
    program();
    const home = await mkdtemp("/var/tmp/bothy-js-e2e-");
    execFileSync(join(repository, "scripts/own-templates"), [join(home, "templates")]);
    const { url, child } = await launch(home, await freeAddress());
    const { api_key: apiKey } = JSON.parse(await readFile(credentials(home), "utf8")) as { api_key: string };
    return new Server({ url, apiKey }, home, child);
  }

  /** Kills the server as a power cut would, and starts it again. */
  async killAndRestart(): Promise<void> {
    await this.#stop("SIGKILL");
    this.#process = (await launch(this.#home, new URL(this.access.url).host)).child;
  }

  async #stop(signal: NodeJS.Signals): Promise<void> {
    const ended = once(this.#process, "exit");
    this.#process.kill(signal);
    await ended;
  }

  /** Ends all sandboxes, the server, and its home. */
  async [Symbol.asyncDispose](): Promise<void> {
    const states = ["starting", "running", "pausing", "paused", "resuming"] as const;
    for (const sbx of await new Bothy(this.access).sandboxes.list({ state: [...states] }).all()) await sbx.terminate();
    await this.#stop("SIGTERM");
    await rm(this.#home, { recursive: true });
  }
}

/** An address that is free while the server is down, too: the kernel gives no port below its range to a connection. */
async function freeAddress(): Promise<string> {
  const lowest = 10_000;
  const range = await readFile("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const room = Number(range.trim().split(/\s+/)[0]) - lowest;
  for (;;) {
    const server = createServer().listen(lowest + Math.floor(Math.random() * room), "127.0.0.1");
    try {
      await once(server, "listening");
    } catch {
      continue; // somebody listens there
    }
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, "close");
    return `127.0.0.1:${port}`;
  }
}

function credentials(home: string): string {
  return join(home, "credentials.json");
}

async function launch(home: string, listen: string): Promise<{ url: string; child: ChildProcess }> {
  const child = spawn(program(), ["serve", "--listen", listen, "--log-format", "json", "--bootstrap-credentials", credentials(home)], {
    env: { ...process.env, BOTHY_HOME: home, BOTHY_TEMPLATES: join(home, "templates") },
    stdio: ["ignore", "inherit", "pipe"],
  });
  return { url: await ready(child), child };
}

/** Shows the errors in a server's log, or with BOTHY_E2E_LOG all of it, until it ends. */
async function showErrors(lines: AsyncIterator<string>): Promise<void> {
  for (let next = await lines.next(); !next.done; next = await lines.next()) {
    if (process.env.BOTHY_E2E_LOG || parse(next.value).level === "ERROR") process.stderr.write(`${next.value}\n`);
  }
}

/** Waits for the line of the log that says where the server listens. */
async function ready(child: ChildProcess): Promise<string> {
  const seen: string[] = [];
  const lines = createInterface({ input: child.stderr as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  for (let next = await lines.next(); !next.done; next = await lines.next()) {
    const line = next.value;
    const entry = parse(line);
    if (entry.msg === "ready" && entry.url) {
      void showErrors(lines);
      return entry.url;
    }
    seen.push(line);
  }
  throw new Error(`the server did not start:\n${seen.join("\n")}`);
}

interface Entry {
  level?: string;
  msg?: string;
  url?: string;
}

function parse(line: string): Entry {
  try {
    return JSON.parse(line) as Entry;
  } catch {
    return {};
  }
}
