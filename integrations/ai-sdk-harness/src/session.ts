import { posix } from "node:path";
import { HarnessCapabilityUnsupportedError } from "@ai-sdk/harness";
import type { HarnessV1NetworkPolicy, HarnessV1NetworkSandboxSession, HarnessV1PortEndpoint, HarnessV1RequestTransformation } from "@ai-sdk/harness";
import { FileNotFoundInSandboxError, NotADirectoryInSandboxError, SandboxEndedError } from "bothy";
import type { Network, Sandbox, Secret } from "bothy";
import { policyOf } from "./policy.js";
import { follow } from "./process.js";
import { Transformations } from "./transformations.js";

/** What a sandbox session offers besides its sandbox. */
export interface SessionOptions {
  /** The ports that are offered to the harness, which takes them for its bridge. Default 4000. */
  ports?: readonly number[];
  /** For how long an address of the deprecated `getPortUrl` works, which has no headers. Default 86400. */
  linkSeconds?: number;
  /** Apply request transformations that name a path, a method or a query to all requests to their host, instead of refusing them. */
  wholeHosts?: boolean;
}

/** What a session is made with. */
export interface SessionSettings extends SessionOptions {
  /** Whose sandbox it is: the caller's, one that can be resumed, or one that nobody comes back to. */
  life: "given" | "kept" | "passing";
  /** The network and the secrets that the sandbox was made with. */
  network?: Network;
  secrets: Secret[];
}

/** The part that files and commands need. */
export type RestrictedSession = ReturnType<HarnessV1NetworkSandboxSession["restricted"]>;

type ProcessOptions = Parameters<RestrictedSession["run"]>[0];
type SandboxProcess = Awaited<ReturnType<RestrictedSession["spawn"]>>;
type Outcome = Awaited<ReturnType<RestrictedSession["run"]>>;

/** Where a file is, and what ends the work on it. */
interface At {
  path: string;
  abortSignal?: AbortSignal;
}

/** The files and commands of a sandbox. */
class Files implements RestrictedSession {
  readonly description: string;
  readonly defaultWorkingDirectory: string;
  readonly sandbox: Sandbox;
  /** Lets go of processes that are followed when the session is stopped. */
  protected readonly over: AbortSignal;

  constructor(sandbox: Sandbox, folder: string, over: AbortSignal) {
    this.sandbox = sandbox;
    this.over = over;
    this.defaultWorkingDirectory = folder;
    this.description = `An isolated Linux machine (${sandbox.info.template}). Commands run in bash, and start in ${folder}.`;
  }

  /** Runs a command to its end. */
  async run({ command, workingDirectory, env, abortSignal }: ProcessOptions): Promise<Outcome> {
    const { exitCode, stdout, stderr } = await this.sandbox.exec(command, { cwd: this.#whole(workingDirectory), env, signal: abortSignal });
    return { exitCode, stdout, stderr };
  }

  /** Starts a command, which outlives this program. */
  async spawn({ command, workingDirectory, env, abortSignal }: ProcessOptions): Promise<SandboxProcess> {
    return follow(await this.sandbox.spawn(command, { cwd: this.#whole(workingDirectory), env, signal: abortSignal }), this.over, abortSignal);
  }

  async readFile({ path, abortSignal: signal }: At): Promise<ReadableStream<Uint8Array> | null> {
    return orNull(this.sandbox.files.readStream(this.#whole(path), { signal }));
  }

  async readBinaryFile({ path, abortSignal: signal }: At): Promise<Uint8Array | null> {
    return orNull(this.sandbox.files.readBytes(this.#whole(path), { signal }));
  }

  async readTextFile({ encoding = "utf-8", startLine, endLine, ...at }: At & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null> {
    const known = textEncoding(encoding);
    const bytes = await this.readBinaryFile(at);
    if (bytes === null) return null;
    const text = Buffer.from(bytes).toString(known);
    if (startLine === undefined && endLine === undefined) return text;
    const lines = text.split("\n");
    const last = Math.min(endLine ?? lines.length, lines.length);
    const chosen = lines.slice(Math.max(startLine ?? 1, 1) - 1, last).join("\n");
    return last < lines.length ? chosen.replace(/\r$/, "") : chosen;
  }

  async writeFile({ path, content, abortSignal: signal }: At & { content: ReadableStream<Uint8Array> }): Promise<void> {
    await this.sandbox.files.write(this.#whole(path), content, { signal });
  }

  async writeBinaryFile({ path, content, abortSignal: signal }: At & { content: Uint8Array }): Promise<void> {
    await this.sandbox.files.write(this.#whole(path), content, { signal });
  }

  async writeTextFile({ content, encoding = "utf-8", ...at }: At & { content: string; encoding?: string }): Promise<void> {
    await this.writeBinaryFile({ ...at, content: Buffer.from(content, textEncoding(encoding)) });
  }

  /** Files and commands mean the same by a relative path. */
  #whole(path = "."): string {
    return posix.resolve(this.defaultWorkingDirectory, path);
  }
}

/** A sandbox as the harness takes it. */
export class Session extends Files implements HarnessV1NetworkSandboxSession {
  readonly #settings: SessionSettings;
  readonly #stopped: AbortController;
  readonly #transformations: Transformations;
  #ports: readonly number[];

  private constructor(sandbox: Sandbox, folder: string, settings: SessionSettings) {
    const stopped = new AbortController();
    super(sandbox, folder, stopped.signal);
    this.#stopped = stopped;
    this.#settings = settings;
    this.#ports = settings.ports ?? [4000];
    this.#transformations = new Transformations(sandbox, settings.secrets, settings.wholeHosts ?? false);
  }

  /** Begins a session in a sandbox that runs. */
  static async open(sandbox: Sandbox, settings: SessionSettings, signal?: AbortSignal): Promise<Session> {
    const { stdout } = (await sandbox.exec("pwd", { signal })).check();
    return new Session(sandbox, stdout.trim(), settings);
  }

  get id(): string {
    return this.sandbox.id;
  }

  get ports(): readonly number[] {
    return this.#ports;
  }

  /** Returns how a port is reached through the server, with the key in the headers. */
  async getPortEndpoint({ port, protocol = "http" }: { port: number; protocol?: "http" | "https" | "ws" }): Promise<HarnessV1PortEndpoint> {
    this.#offered(port);
    const { url, webSocketUrl, headers } = await this.sandbox.endpoint(port);
    if (protocol === "https" && !url.startsWith("https:")) {
      throw new HarnessCapabilityUnsupportedError({ message: `the server at ${new URL(url).origin} has no TLS, so that port ${port} has no https address. Ask for http.` });
    }
    return { url: protocol === "ws" ? webSocketUrl : url, headers };
  }

  /** Makes a link to a port, which works without headers for a while. */
  async getPortUrl({ port, protocol = "http" }: { port: number; protocol?: "http" | "https" | "ws" }): Promise<string> {
    this.#offered(port);
    const { url } = await this.sandbox.createLink(port, { kind: "webhook", expiresSeconds: this.#settings.linkSeconds ?? 86_400 });
    return protocol === "ws" ? url.replace(/^http/, "ws") : url;
  }

  /** Replaces the ports that are offered. Nothing is closed by that: who has the key reaches every port. */
  async setPorts(ports: readonly number[]): Promise<void> {
    this.#ports = [...ports];
  }

  /** Pauses the sandbox, with its memory, where the session can be resumed; otherwise ends it. */
  async stop(): Promise<void> {
    const { life } = this.#settings;
    if (life === "passing") return this.destroy();
    if (life === "given") return;
    this.#stopped.abort(new Error("the session was stopped."));
    const { state } = await this.sandbox.refresh();
    if (state !== "running" && state !== "starting" && state !== "resuming") return;
    await this.sandbox.pause().catch((error: unknown) => {
      if (!(error instanceof SandboxEndedError)) throw error;
    });
  }

  /** Ends the sandbox, running or paused. */
  async destroy(): Promise<void> {
    if (this.#settings.life !== "given") await this.sandbox.terminate();
  }

  /** Sets what the sandbox may reach, at once. */
  async setNetworkPolicy(policy: HarnessV1NetworkPolicy): Promise<void> {
    await this.sandbox.setNetwork(policyOf(policy, this.#settings.network));
  }

  /** Replaces the rules. The secrets that the sandbox was made with stay. */
  setRequestTransformations(rules: readonly HarnessV1RequestTransformation[]): Promise<void> {
    return this.#transformations.set(rules);
  }

  /** Adds rules; one for the same header of the same host replaces the one before. */
  addRequestTransformations(rules: readonly HarnessV1RequestTransformation[]): Promise<void> {
    return this.#transformations.add(rules);
  }

  /** Returns what has no power over the sandbox itself. */
  restricted(): RestrictedSession {
    return restrict(new Files(this.sandbox, this.defaultWorkingDirectory, this.over));
  }

  #offered(port: number): void {
    if (this.#ports.includes(port)) return;
    throw new HarnessCapabilityUnsupportedError({ message: `port ${port} is not among those that are offered (${this.#ports.join(", ") || "none"}). Give it to bothySandbox, as in { ports: [${port}] }.` });
  }
}

/** Leaves the sandbox itself out, which could be reached by the object's fields. */
function restrict(files: Files): RestrictedSession {
  return {
    description: files.description,
    run: (options) => files.run(options),
    spawn: (options) => files.spawn(options),
    readFile: (options) => files.readFile(options),
    readBinaryFile: (options) => files.readBinaryFile(options),
    readTextFile: (options) => files.readTextFile(options),
    writeFile: (options) => files.writeFile(options),
    writeBinaryFile: (options) => files.writeBinaryFile(options),
    writeTextFile: (options) => files.writeTextFile(options),
  };
}

async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof FileNotFoundInSandboxError || error instanceof NotADirectoryInSandboxError) return null;
    throw error;
  }
}

function textEncoding(name: string): BufferEncoding {
  if (Buffer.isEncoding(name)) return name;
  throw new RangeError(`${name} is not an encoding that is known. Take utf-8, utf-16le, latin1 or ascii, or read and write the bytes.`);
}
