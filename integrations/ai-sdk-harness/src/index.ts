/**
 * Bothy sandboxes for the AI SDK's harness.
 *
 * @packageDocumentation
 */
import { createHash } from "node:crypto";
import { HarnessSandboxAuthenticationError } from "@ai-sdk/harness";
import type { HarnessV1NetworkSandboxSession, HarnessV1SandboxProvider } from "@ai-sdk/harness";
import { AuthenticationError, Bothy, ForbiddenError } from "bothy";
import type { CreateParams, Sandbox, Snapshot } from "bothy";
import { Session, type SessionOptions } from "./session.js";
import { checkVersion } from "./tested.js";

/** How {@link bothySandbox} reaches the server, and what its sandboxes are. */
export interface HarnessSandboxOptions extends CreateParams, SessionOptions {
  /** The server. Default: `BOTHY_URL`, then the credentials file. */
  url?: string;
  /** The key. Default: `BOTHY_API_KEY`, then the credentials file. */
  apiKey?: string;
  /** A client to use instead of `url` and `apiKey`. */
  client?: Bothy;
  /** A sandbox that is there, instead of one for each session. Whoever made it ends it. */
  sandbox?: Sandbox;
}

/** The label by which a session's sandbox is found again. */
const label = "ai-sdk-harness-session";

type CreateOptions = NonNullable<Parameters<HarnessV1SandboxProvider["createSession"]>[0]>;

/**
 * Returns a provider whose sandboxes are Bothy's. Sandboxes have the template `node-22`, live for an hour
 * and are paused then, unless the options say otherwise.
 *
 * ```ts
 * const agent = new HarnessAgent({ harness: claudeCode, sandbox: bothySandbox({ network: { presets: ["llm", "npm"] } }) });
 * ```
 */
export function bothySandbox(options: HarnessSandboxOptions = {}): HarnessV1SandboxProvider {
  checkVersion();
  const { url, apiKey, client = new Bothy({ url, apiKey }), sandbox: given, ports, linkSeconds, wholeHosts, ...create } = options;
  const params: CreateParams = { template: create.snapshotId === undefined ? "node-22" : undefined, timeoutSeconds: 3600, onTimeout: "pause", ...create };
  const settings = { ports, linkSeconds, wholeHosts, network: params.network, secrets: params.secrets ?? [] };

  const open = (sandbox: Sandbox, life: "given" | "kept" | "passing", signal?: AbortSignal): Promise<Session> => Session.open(sandbox, { ...settings, life }, signal);

  async function start({ sessionId, identity, onFirstCreate, abortSignal: signal }: CreateOptions): Promise<HarnessV1NetworkSandboxSession> {
    const life = sessionId === undefined ? "passing" : "kept";
    const metadata = { ...params.metadata, ...(sessionId !== undefined && { [label]: sessionId }) };
    const prepared = identity === undefined || !onFirstCreate ? undefined : `ai-sdk-harness-${identity}-${digest([params.template, params.snapshotId])}`;
    const snapshot = prepared && (await newest(client, prepared));
    const from = snapshot ? { template: undefined, snapshotId: snapshot.id } : {};
    const sandbox = await client.sandboxes.create({ ...params, metadata, ...from }, { signal });
    try {
      const session = await open(sandbox, life, signal);
      if (onFirstCreate && !snapshot) await toldIfLong(sandbox, () => onFirstCreate(session.restricted(), { abortSignal: signal }));
      // What runs already belongs to this session alone: the next ones start with the files.
      if (prepared && !snapshot) await sandbox.snapshot({ name: prepared, memory: false, signal });
      return session;
    } catch (error) {
      await sandbox.terminate();
      throw error;
    }
  }

  async function find(sessionId: string, signal?: AbortSignal): Promise<HarnessV1NetworkSandboxSession> {
    const { items } = await client.sandboxes.list({ live: true, metadata: { [label]: sessionId }, limit: 1 }, { signal });
    const [sandbox] = items;
    if (!sandbox) throw new Error(`there is no sandbox of the session ${sessionId}: it was destroyed, or its time was up. Begin a new session.`);
    if (sandbox.info.state === "paused") await sandbox.resume({ signal });
    return open(sandbox, "kept", signal);
  }

  return {
    specificationVersion: "harness-sandbox-v1",
    providerId: "bothy",
    createSession: (options = {}) => authenticated(() => (given ? open(given, "given", options.abortSignal) : start(options))),
    resumeSession: ({ sessionId, abortSignal }) => authenticated(() => (given ? open(given, "given", abortSignal) : find(sessionId, abortSignal))),
  };
}

/** The last snapshot of a name. */
async function newest(client: Bothy, name: string): Promise<Snapshot | undefined> {
  return (await client.snapshots.list({ name, limit: 1 })).items[0];
}

function digest(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex").slice(0, 12);
}

/** Tells a key that does not do in the framework's words. */
async function authenticated<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof AuthenticationError || cause instanceof ForbiddenError)) throw cause;
    const message = `Bothy refused the key: ${cause.message} Set BOTHY_API_KEY, or give apiKey to bothySandbox.`;
    throw new HarnessSandboxAuthenticationError({ message, sandboxProviderId: "bothy", cause });
  }
}

/** Says, as a warning of the process, what a session waits for while the harness installs what it needs. */
async function toldIfLong(sandbox: Sandbox, install: () => PromiseLike<void> | void): Promise<void> {
  const timer = setTimeout(
    () => process.emitWarning(`the harness installs what it needs in the sandbox ${sandbox.id}, once; the session waits for that`, { code: "BOTHY_WAITING" }),
    10_000,
  );
  try {
    await install();
  } finally {
    clearTimeout(timer);
  }
}
