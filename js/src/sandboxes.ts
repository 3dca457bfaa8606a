import { NotFoundError, SnapshotNotFoundError } from "./errors.js";
import { type Page, PageList } from "./page.js";
import { Sandbox } from "./sandbox.js";
import { type Call, type CallOptions, startSeconds, type Transport } from "./transport.js";
import type { CreateParams, ListParams, ResumeParams, SandboxInfo, SandboxState } from "./types.js";

const liveStates: SandboxState[] = ["starting", "running", "pausing", "paused", "resuming", "stopping"];

/** The sandboxes of a project. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a sandbox. It runs when the promise is fulfilled. One that an aborted call has made is ended. */
  async create(params: CreateParams = {}, options: CallOptions = {}): Promise<Sandbox> {
    options.signal?.throwIfAborted();
    const call = {
      method: "POST",
      path: "/v1/sandboxes",
      json: params,
      timeoutSeconds: startSeconds,
      headers: { "Idempotency-Key": globalThis.crypto.randomUUID() },
      ...options,
    } as const;
    try {
      return new Sandbox(this.#transport, await this.#transport.json<SandboxInfo>(call));
    } catch (error) {
      if (options.signal?.aborted) void this.#undo(call);
      throw error;
    }
  }

  /** Ends what an aborted call has made: its answer was on the way already, and is asked for again by its key. */
  async #undo(call: Call): Promise<void> {
    try {
      const info = await this.#transport.json<SandboxInfo>({ ...call, signal: undefined });
      await new Sandbox(this.#transport, info).terminate();
    } catch {
      // Nothing was made, or the server does not answer: then it ends with its time.
    }
  }

  /** Finds a sandbox in any state, ended ones included. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.#transport.json<SandboxInfo>({ path: `/v1/sandboxes/${encodeURIComponent(id)}`, ...options });
    return new Sandbox(this.#transport, info);
  }

  /** Lists sandboxes, newest first and ended ones included: `await` gives a page, `for await` everything. */
  list(params: ListParams = {}, options: CallOptions = {}): PageList<Sandbox> {
    const fetch = async (cursor?: string): Promise<Page<Sandbox>> => {
      const state = params.state ?? (params.live ? liveStates : undefined);
      const query = { ...params, live: undefined, state: state && [state].flat().join(","), cursor };
      const page = await this.#transport.json<Page<SandboxInfo>>({ path: "/v1/sandboxes", query, ...options });
      return { items: page.items.map((info) => new Sandbox(this.#transport, info)), nextCursor: page.nextCursor || undefined };
    };
    return new PageList(fetch, params.cursor);
  }

  /** Wakes a paused sandbox, by its own id or by its snapshot's. With `memory: false` it restarts with its files. */
  async resume(id: string, options: CallOptions & ResumeParams = {}): Promise<Sandbox> {
    return (await this.#wake("snapshots", id, options)) ?? (await this.#wake("sandboxes", id, options)) ?? nothingToWake(id);
  }

  /**
   * Starts a sandbox again that has failed, under its id and with its settings: from the snapshot that it was made
   * from, if that is still there, or from its template. What it did until then is lost.
   */
  async restart(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const path = `/v1/sandboxes/${encodeURIComponent(id)}/restart`;
    const call = { method: "POST", path, timeoutSeconds: startSeconds, signal: options.signal } as const;
    return new Sandbox(this.#transport, await this.#transport.json<SandboxInfo>(call));
  }

  async #wake(kind: "snapshots" | "sandboxes", id: string, options: CallOptions & ResumeParams): Promise<Sandbox | undefined> {
    const path = `/v1/${kind}/${encodeURIComponent(id)}/resume`;
    try {
      const call = { method: "POST", path, json: options.memory === undefined ? undefined : { memory: options.memory }, timeoutSeconds: startSeconds, signal: options.signal } as const;
      return new Sandbox(this.#transport, await this.#transport.json<SandboxInfo>(call));
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  }
}

function nothingToWake(id: string): never {
  throw new SnapshotNotFoundError({
    code: "snapshot_not_found",
    status: 404,
    detail: `there is neither a snapshot nor a sandbox with the id ${JSON.stringify(id)}.`,
    hint: "`bothy ls` and `bothy snapshots` list what there is.",
  });
}
