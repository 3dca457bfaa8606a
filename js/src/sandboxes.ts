import { BothyError, InvalidArgumentError, NotFoundError, SnapshotNotFoundError } from "./errors.js";
import { type Page, PageList } from "./page.js";
import { Sandbox } from "./sandbox.js";
import { type Call, type CallOptions, keyOf, startSeconds, type Transport } from "./transport.js";
import type { CreateParams, EndParams, FleetParams, ListParams, ResumeParams, SandboxInfo, SandboxState } from "./types.js";

const liveStates: SandboxState[] = ["starting", "running", "pausing", "paused", "resuming", "stopping"];

/** The sandboxes of a project. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a sandbox. It runs when the promise is fulfilled. One that an aborted call has made is ended. For a day, a
   * call with the same `tag` and parameters returns the same sandbox.
   */
  async create(params: CreateParams = {}, options: CallOptions & { tag?: string } = {}): Promise<Sandbox> {
    const { tag, ...rest } = options;
    rest.signal?.throwIfAborted();
    const call = {
      method: "POST",
      path: "/v1/sandboxes",
      json: params,
      timeoutSeconds: startSeconds + (params.repo ? cloneSeconds : 0),
      headers: { "Idempotency-Key": tag === undefined ? globalThis.crypto.randomUUID() : keyOf(tag) },
      ...rest,
    } as const;
    try {
      return new Sandbox(this.#transport, await this.#transport.json<SandboxInfo>(call));
    } catch (error) {
      if (options.signal?.aborted) void this.#undo(call);
      throw error;
    }
  }

  /** Makes many sandboxes, and returns for each the sandbox or its error, in order. */
  async createMany(count: number, params: CreateParams & FleetParams = {}, options: CallOptions = {}): Promise<(Sandbox | BothyError)[]> {
    const { tag, concurrency, ...create } = params;
    return each(Array.from({ length: count }, (_, index) => index), concurrency, (index) =>
      orError(this.create(create, tag === undefined ? options : { ...options, tag: `${tag}/${index}` })),
    );
  }

  /** Ends many sandboxes, and returns for each id its error, or undefined. */
  async terminateMany(what: EndParams, options: CallOptions & { concurrency?: number } = {}): Promise<Map<string, BothyError | undefined>> {
    const { concurrency, ...call } = options;
    const found = what.sandboxes ?? (Object.keys(what.metadata).length > 0 ? await this.list({ metadata: what.metadata, live: true }, call).all() : nothingToEnd());
    const ids = [...found].map((sandbox) => (typeof sandbox === "string" ? sandbox : sandbox.id));
    const errors = await each(ids, concurrency, (id) => orError(this.#transport.empty({ method: "DELETE", path: `/v1/sandboxes/${encodeURIComponent(id)}`, ...call })));
    return new Map(ids.map((id, index) => [id, errors[index] ?? undefined]));
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

/** How much longer a sandbox with a repository may take. */
const cloneSeconds = 240;

/** Calls a function for each item, some at once, and returns the results in order. */
async function each<T, R>(items: T[], concurrency = 16, call: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const next = items.entries();
  const work = async (): Promise<void> => {
    for (const [index, item] of next) results[index] = await call(item);
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(concurrency, items.length)) }, work));
  return results;
}

async function orError<T>(promise: Promise<T>): Promise<T | BothyError> {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof BothyError) return error;
    throw error;
  }
}

function nothingToEnd(): never {
  throw new InvalidArgumentError({ code: "invalid_argument", detail: "the metadata is empty.", hint: "Give sandboxes, or the metadata that they have." });
}

function nothingToWake(id: string): never {
  throw new SnapshotNotFoundError({
    code: "snapshot_not_found",
    status: 404,
    detail: `there is neither a snapshot nor a sandbox with the id ${JSON.stringify(id)}.`,
    hint: "`bothy ls` and `bothy snapshots` list what there is.",
  });
}
