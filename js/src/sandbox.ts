import { Browser } from "./browser.js";
import { Bothy, type UsageOptions } from "./client.js";
import { type CodeResult, Contexts, runCode, type RunCodeOptions } from "./code.js";
import { type BothyError, InvalidArgumentError, SandboxPausedError, TimeoutError } from "./errors.js";
import { type EventOptions, eventsOf } from "./events.js";
import { type Command, type CommandOptions, exec, type ExecEvent, type ExecOptions, type ExecResult, execStream, spawn } from "./exec.js";
import { Files } from "./files.js";
import { Forward, type ForwardOptions } from "./forward.js";
import type { Network, NetworkDecision } from "./network.js";
import { type Page, PageList } from "./page.js";
import { Process, type ProcessInfo } from "./process.js";
import { Shell } from "./shell.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import { type CallOptions, keyOf, startSeconds, type Transport } from "./transport.js";
import type { BothyEvent, CreateParams, Durable, EndParams, FleetParams, ForkParams, Limits, Link, LinkInfo, LinkKind, ListParams, Logs, Metrics, ResumeParams, SandboxInfo, SandboxState, Snapshot, Template, TemplateFromParams, UpdateParams, UsageReport } from "./types.js";

/** Which server the static methods of {@link Sandbox} talk to. By default the environment says. */
export interface Connection extends CallOptions {
  /** A client to use. It wins over `url` and `apiKey`. */
  client?: Bothy;
  /** The server's address. */
  url?: string;
  /** The API key. */
  apiKey?: string;
}

function connect({ client, url, apiKey }: Connection): Bothy {
  return client ?? new Bothy({ url, apiKey });
}

/** How long to wait for something in a sandbox. */
export interface WaitOptions extends CallOptions {
  /** Give up with a {@link ConflictError}, which names the exit code, as soon as this process ends. */
  process?: Process | number;
  /** How long to wait, at most 600. Default 60. A {@link TimeoutError} says that it was not long enough. */
  timeoutSeconds?: number;
}

interface WaitAnswer {
  timedOut: boolean;
  line?: string;
  status?: number;
  exitCode?: number;
}

/** How a link is made. */
export interface LinkOptions extends CallOptions {
  /**
   * `browser`, which is the default: opened in a browser, after which only the sandbox's
   * own pages may send what changes something. `webhook`: for programs, whose requests
   * pass through by any method. `cdp`: the address of a browser, see {@link Sandbox.browser}.
   */
  kind?: LinkKind;
  /**
   * Lets the server see the link's host name in `Host`. By default it sees `localhost` and its port, since many
   * development servers refuse other names.
   */
  keepHost?: boolean;
  /** For how long it can be used; one hour unless given. */
  expiresSeconds?: number;
}

/** How programs that have the key reach the HTTP server on a port of a sandbox. */
export interface Endpoint {
  /** The address; paths are appended to it. It ends with a slash. */
  url: string;
  /** The same for WebSockets. */
  webSocketUrl: string;
  /** What each request must carry. It holds the key, which does not arrive inside: keep it secret. */
  headers: Record<string, string>;
}

/**
 * One disposable Linux machine.
 *
 * ```ts
 * await using sbx = await Sandbox.create({ template: "node-22" });
 * const result = await sbx.exec("node --version");
 * console.log(result.stdout);
 * ```
 */
export class Sandbox {
  /** Its file system. */
  readonly files: Files;
  /** The places where code runs and variables stay. */
  readonly contexts: Contexts;
  /** The browser of a sandbox from the template `browser`. */
  readonly browser: Browser;
  /** What the server said about it last; see {@link refresh}. */
  info: SandboxInfo;
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal Use {@link Sandbox.create}. */
  constructor(transport: Transport, info: SandboxInfo) {
    this.#transport = transport;
    this.#path = `/v1/sandboxes/${encodeURIComponent(info.id)}`;
    this.info = info;
    this.files = new Files(transport, this.#path);
    this.contexts = new Contexts(transport, this.#path);
    this.browser = new Browser(this);
  }

  /** Makes a sandbox. It runs when the promise is fulfilled. */
  static async create(params: CreateParams & Connection & { tag?: string } = {}): Promise<Sandbox> {
    const { client, url, apiKey, signal, tag, ...create } = params;
    return connect({ client, url, apiKey }).sandboxes.create(create, { signal, tag });
  }

  /** Makes many sandboxes, and returns for each the sandbox or its error, in order. */
  static async createMany(count: number, params: CreateParams & FleetParams & Connection = {}): Promise<(Sandbox | BothyError)[]> {
    const { client, url, apiKey, signal, ...create } = params;
    return connect({ client, url, apiKey }).sandboxes.createMany(count, create, { signal });
  }

  /** Ends many sandboxes, and returns for each id its error, or undefined. */
  static async terminateMany(what: EndParams, options: Connection & { concurrency?: number } = {}): Promise<Map<string, BothyError | undefined>> {
    const { concurrency, signal } = options;
    return connect(options).sandboxes.terminateMany(what, { concurrency, signal });
  }

  /** Finds a sandbox in any state, ended ones included. */
  static async get(id: string, connection: Connection = {}): Promise<Sandbox> {
    return connect(connection).sandboxes.get(id, { signal: connection.signal });
  }

  /** Lists sandboxes, newest first: `await` gives a page, `for await` everything. */
  static list(params: ListParams & Connection = {}): PageList<Sandbox> {
    const { client, url, apiKey, signal, ...filter } = params;
    return connect({ client, url, apiKey }).sandboxes.list(filter, { signal });
  }

  /** Wakes a paused sandbox, by its own id or by its snapshot's. With `memory: false` it restarts with its files. */
  static async resume(id: string, options: Connection & ResumeParams = {}): Promise<Sandbox> {
    const { memory, signal } = options;
    return connect(options).sandboxes.resume(id, { memory, signal });
  }

  /**
   * Starts a sandbox again that has failed, as one whose host was lost, under its id and with its settings: from the
   * snapshot that it was made from, if that is still there, or from its template. What it did until then is lost.
   */
  static async restart(id: string, connection: Connection = {}): Promise<Sandbox> {
    return connect(connection).sandboxes.restart(id, { signal: connection.signal });
  }

  /** Returns the project's limits, and how much is in use. */
  static async limits(connection: Connection = {}): Promise<Limits> {
    return connect(connection).limits({ signal: connection.signal });
  }

  /** Returns what the project has used, and what it costs. */
  static async usage(options: UsageOptions & Connection = {}): Promise<UsageReport> {
    const { client, url, apiKey, ...query } = options;
    return connect({ client, url, apiKey }).usage(query);
  }

  /** Its id. */
  get id(): string {
    return this.info.id;
  }

  /** Its state as the server described it last; see {@link refresh}. */
  get state(): SandboxState {
    return this.info.state;
  }

  /** Its labels as the server described them last; see {@link refresh}. */
  get metadata(): Record<string, string> {
    return this.info.metadata ?? {};
  }

  /** Runs a command to its end. A non-zero exit code is a result, not an error. */
  async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    return exec(this.#transport, this.#path, command, options);
  }

  /** Runs a command and yields its output as it arrives, and its end. Leaving the loop kills it. */
  execStream(command: Command, options: CommandOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    return execStream(this.#transport, this.#path, command, options);
  }

  /** Starts a command in the background. It runs on when this program ends. */
  async spawn(command: Command, options: CommandOptions = {}): Promise<Process> {
    return this.process(await spawn(this.#transport, this.#path, command, options));
  }

  /** Returns a process that was started through the API, also by another program. */
  process(pid: number): Process {
    return new Process(this.#transport, this.#path, pid);
  }

  /** Lists the processes that were started through the API; with `all`, every other that runs, too, and what each uses. */
  async processes({ all, signal }: CallOptions & { all?: boolean } = {}): Promise<ProcessInfo[]> {
    return (await this.#transport.json<{ items: ProcessInfo[] }>({ path: `${this.#path}/processes`, query: { all }, signal })).items;
  }

  /** Waits until a server in the sandbox accepts connections on a port of its loopback. */
  async waitForPort(port: number, options: WaitOptions = {}): Promise<void> {
    await this.#waitFor({ port }, options);
  }

  /** Waits until a URL, as seen from inside, is answered with `status`, or with any from 200 to 399, and returns the status. */
  async waitForUrl(url: string, options: WaitOptions & { status?: number } = {}): Promise<number> {
    const { status, ...wait } = options;
    return (await this.#waitFor({ url, status }, wait)).status ?? 0;
  }

  /**
   * Waits for a line that contains a text, or with `regex` matches it, and returns the line: in the output of the
   * process, with what is still held of it, or in the file `path`, which need not exist yet and is read as `user`.
   */
  async waitForLog(text: string, options: WaitOptions & { path?: string; regex?: boolean; user?: string }): Promise<string> {
    const { path, regex, user, ...wait } = options;
    return (await this.#waitFor({ log: text, path, regex, user }, wait)).line ?? "";
  }

  /** Waits for the end of a process, and returns its exit code, which is known if it was started through the API. */
  async waitForExit(process: Process | number, options: Omit<WaitOptions, "process"> = {}): Promise<number | undefined> {
    return (await this.#waitFor({}, { ...options, process })).exitCode;
  }

  async #waitFor(what: Record<string, unknown>, { process, timeoutSeconds = 60, signal }: WaitOptions): Promise<WaitAnswer> {
    const pid = typeof process === "object" ? process.pid : process;
    const json = { ...what, pid, timeoutSeconds };
    const answer = await this.#transport.json<WaitAnswer>({ method: "POST", path: `${this.#path}/wait`, json, keyed: false, timeoutSeconds: timeoutSeconds + 30, signal });
    if (answer.timedOut) throw new TimeoutError({ code: "timeout", detail: `what is waited for has not come in ${timeoutSeconds} seconds.` });
    return answer;
  }

  /** Opens a terminal (PTY). */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#transport, this.#path, options);
  }

  /** Makes a shell whose directory and variables persist from command to command. */
  async shell(options: CallOptions & { cwd?: string } = {}): Promise<Shell> {
    const { signal, ...json } = options;
    return this.getShell((await this.#post<{ id: string }>("shells", json, signal)).id);
  }

  /** Returns a shell that was made before, or the one that each sandbox has anyway. */
  getShell(id = "default"): Shell {
    return new Shell(this.#transport, this.#path, id);
  }

  /** Runs code in a context whose variables stay, as a notebook does. */
  async runCode(code: string, options: RunCodeOptions = {}): Promise<CodeResult> {
    return runCode(this.#transport, this.#path, code, options);
  }

  /**
   * Freezes the sandbox and returns the id of its snapshot. It
   * keeps its id and costs no CPU and no memory until it is resumed. With
   * `memory: false` only its files are kept. With `wait: "store"` it returns when the
   * snapshot is in the server's object storage as well, or after four minutes.
   */
  async pause(options: CallOptions & { memory?: boolean; name?: string; wait?: Durable } = {}): Promise<string> {
    const { signal, ...json } = options;
    const answer = await this.#post<{ snapshotId: string }>("pause", json, signal);
    this.info = { ...this.info, state: "paused" };
    return answer.snapshotId;
  }

  /** Wakes the sandbox. It is back exactly where it was; with `memory: false` it restarts with its files. */
  async resume(options: CallOptions & ResumeParams = {}): Promise<SandboxInfo> {
    return (this.info = await this.#post<SandboxInfo>("resume", options.memory === undefined ? undefined : { memory: options.memory }, options.signal));
  }

  /**
   * Takes a live snapshot; the sandbox runs on. With `memory: false` only its files are
   * kept. With `wait: "store"` it returns when the snapshot is in the server's object
   * storage as well, or after four minutes: `durable` says which.
   */
  async snapshot(options: CallOptions & { memory?: boolean; name?: string; wait?: Durable } = {}): Promise<Snapshot> {
    const { signal, ...json } = options;
    return this.#post("snapshots", json, signal);
  }

  /** Makes a template of the sandbox's files, from which new sandboxes start; with `memory`, from its processes, too. */
  async createTemplate(name: string, options: CallOptions & TemplateFromParams = {}): Promise<Template> {
    const { signal, ...json } = options;
    return this.#post("template", { name, ...json }, signal);
  }

  /** Lists the snapshots of this sandbox: `await` gives a page, `for await` everything. */
  snapshots(options: CallOptions = {}): PageList<Snapshot> {
    const query = { sandboxId: this.id };
    return new PageList((cursor) => this.#transport.json<Page<Snapshot>>({ path: "/v1/snapshots", query: { ...query, cursor }, ...options }));
  }

  /** Makes copies with memory and processes; the original runs on. */
  async fork(count = 1, params: ForkParams & CallOptions = {}): Promise<Sandbox[]> {
    const { signal, tag, ...overrides } = params;
    const headers = tag === undefined ? undefined : { "Idempotency-Key": keyOf(tag) };
    const call = { method: "POST", path: `${this.#path}/fork`, json: { count, ...overrides }, timeoutSeconds: startSeconds, headers, signal } as const;
    const { items } = await this.#transport.json<{ items: SandboxInfo[] }>(call);
    return items.map((info) => new Sandbox(this.#transport, info));
  }

  /**
   * Starts the sandbox again once it has failed, as one whose host was lost: from the snapshot that it was made from,
   * if that is still there, or from its template. What it did until then is lost.
   */
  async restart(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#post<SandboxInfo>("restart", undefined, options.signal));
  }

  /** Returns the sandbox to its state at a snapshot. Its state until now is kept as another snapshot. */
  async rollback(snapshot: Snapshot | string, options: CallOptions = {}): Promise<SandboxInfo> {
    const snapshotId = typeof snapshot === "string" ? snapshot : snapshot.id;
    return (this.info = await this.#post<SandboxInfo>("rollback", { snapshotId }, options.signal));
  }

  /** Sets how long the sandbox may live from now on; 0 for ever, where the plan allows it. */
  async setTimeout(timeoutSeconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    const info = await this.update({ timeoutSeconds }, options);
    if ((info.state === "paused" || info.state === "pausing") && !info.autoResume) {
      throw new SandboxPausedError({
        code: "sandbox_paused",
        detail: `sandbox ${this.id} is paused, so its new time-out has not begun.`,
        hint: "Resume it, and it lives that long from then on; or create it with autoResume.",
      });
    }
    return info;
  }

  /** Sets what the sandbox may reach. It takes effect at once, also on open connections. */
  async setNetwork(network: Network, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.update({ network }, options);
  }

  /** Changes a live sandbox. */
  async update(params: UpdateParams, options: CallOptions = {}): Promise<SandboxInfo> {
    this.info = await this.#transport.json<SandboxInfo>({ method: "PATCH", path: this.#path, json: params, ...options });
    return this.info;
  }

  /** Returns what the sandbox tried to reach, and what became of it, oldest first. */
  async networkLog(options: CallOptions & { since?: Date } = {}): Promise<NetworkDecision[]> {
    const { since, signal } = options;
    return (await this.#transport.json<{ items: NetworkDecision[] }>({ path: `${this.#path}/network/log`, query: { since }, signal })).items;
  }

  /** Yields what the sandbox tries to reach, as it happens. */
  followNetworkLog(options: CallOptions & { since?: Date } = {}): AsyncGenerator<NetworkDecision, void, undefined> {
    const { since, signal } = options;
    return this.#transport.events({ path: `${this.#path}/network/log`, query: { since }, signal });
  }

  /** Returns what the sandbox uses now. */
  async metrics(options: CallOptions = {}): Promise<Metrics> {
    return this.#transport.json({ path: `${this.#path}/metrics`, ...options });
  }

  /**
   * Returns the measurements taken every ten seconds, oldest first. The last half hour is
   * kept at most, since the sandbox was last started or resumed.
   */
  async metricsHistory(options: CallOptions & { from?: Date; to?: Date } = {}): Promise<Metrics[]> {
    const { from, to, signal } = options;
    return (await this.#transport.json<Page<Metrics>>({ path: `${this.#path}/metrics/history`, query: { from, to }, signal })).items;
  }

  /** Returns what the commands, or one of them, have written and the sandbox still holds. */
  async logs(options: CallOptions & { pid?: number } = {}): Promise<Logs> {
    const { pid, signal } = options;
    return this.#transport.json({ path: `${this.#path}/logs`, query: { pid }, signal });
  }

  /** Yields what has happened to the sandbox, and then what happens, until the caller leaves the loop. */
  events(options: EventOptions = {}): AsyncGenerator<BothyEvent, void, undefined> {
    return eventsOf(this.#transport, { ...options, sandboxId: this.id });
  }

  /** Opens a port of this computer that leads to a port of the sandbox. Only in runtimes that have `node:net`. */
  async forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    return Forward.open(this.#transport, `${this.#path}/ports/${port}`, options);
  }

  /**
   * Returns how this program reaches the HTTP server on a port of the sandbox through the
   * server's API, WebSockets included: an address, and headers with the key. Nothing is
   * opened or made by that. For others, who get no key, see {@link createLink}.
   */
  async endpoint(port: number): Promise<Endpoint> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) {
      throw new InvalidArgumentError({ code: "invalid_argument", detail: `${port} is not a port.`, hint: "Give a whole number from 1 to 65535." });
    }
    const { url, headers } = await this.#transport.address(`${this.#path}/ports/${port}/`);
    const { "User-Agent": _, ...needed } = headers;
    return { url, webSocketUrl: url.replace(/^http/, "ws"), headers: needed };
  }

  /**
   * Returns a link to the HTTP server on a port of the sandbox, for a browser. Anyone who
   * has the link can use it, without a key, until it ends: after an hour, unless told
   * otherwise. For a webhook see {@link createLink}. Where it ends with `.localhost`,
   * browsers and curl find it, and other programs, such as Node, often do not: for those
   * there are {@link endpoint} and {@link forward}.
   */
  async url(port: number, options: CallOptions & { expiresSeconds?: number } = {}): Promise<string> {
    return (await this.createLink(port, options)).url;
  }

  /**
   * Makes a link to the HTTP server on a port of the sandbox, for a browser or a webhook.
   * It ends when it expires or is deleted, with the sandbox, and with the key that this
   * client uses.
   */
  async createLink(port: number, options: LinkOptions = {}): Promise<Link> {
    const { kind, keepHost, expiresSeconds, signal } = options;
    return this.#post<Link>("links", { port, kind, keepHost, expiresSeconds }, signal);
  }

  /** Returns the links to the sandbox's ports that can be used, newest first. */
  async links(options: CallOptions = {}): Promise<LinkInfo[]> {
    return (await this.#transport.json<{ items: LinkInfo[] }>({ path: `${this.#path}/links`, ...options })).items;
  }

  /** Revokes a link. Connections made through it end within a second. */
  async deleteLink(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: `${this.#path}/links/${encodeURIComponent(id)}`, ...options });
  }

  /** Asks the server how the sandbox is, and returns the new {@link info}. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json<SandboxInfo>({ path: this.#path, ...options }));
  }

  /** Ends the sandbox and all that is in it. Ending an ended one is fine. */
  async terminate(options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: this.#path, ...options });
    this.info = { ...this.info, state: this.info.state === "failed" ? "failed" : "stopped" };
  }

  /** Terminates; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.terminate();
  }

  #post<T>(verb: string, json: unknown, signal: AbortSignal | undefined): Promise<T> {
    return this.#transport.json<T>({ method: "POST", path: `${this.#path}/${verb}`, json, timeoutSeconds: startSeconds, signal });
  }
}
