import { type FileContent, toBody } from "./files.js";
import { type Page, PageList } from "./page.js";
import { Sandbox } from "./sandbox.js";
import { streamOf } from "./transfer.js";
import { type CallOptions, startSeconds, type Transport } from "./transport.js";
import type { ResumeParams, SandboxInfo, Snapshot, SnapshotChanges, SnapshotListParams } from "./types.js";

/** Options of {@link Snapshots.export}. */
export interface ExportOptions extends CallOptions {
  /** Encrypts the archive. */
  passphrase?: string;
}

/** Options of {@link Snapshots.import}. */
export interface ImportOptions extends CallOptions {
  /** The passphrase that the archive was exported with. */
  passphrase?: string;
  /** A name instead of the one that it had. */
  name?: string;
}

/** Writes text as UTF-8 in the way that headers can carry it. */
function byteString(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

function sealed(passphrase: string | undefined): Record<string, string> {
  return passphrase === undefined ? {} : { "X-Bothy-Passphrase": byteString(passphrase) };
}

/** The snapshots of a project. */
export class Snapshots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists snapshots, newest first: `await` gives a page, `for await` everything. */
  list(params: SnapshotListParams = {}, options: CallOptions = {}): PageList<Snapshot> {
    const fetch = async (cursor?: string): Promise<Page<Snapshot>> => {
      const page = await this.#transport.json<Page<Snapshot>>({ path: "/v1/snapshots", query: { ...params, cursor }, ...options });
      return { items: page.items, nextCursor: page.nextCursor || undefined };
    };
    return new PageList(fetch, params.cursor);
  }

  /** Finds a snapshot. */
  async get(id: string, options: CallOptions = {}): Promise<Snapshot> {
    return this.#transport.json({ path: path(id), ...options });
  }

  /** Lists the files that were added, changed or removed from the snapshot `since` to this one. Times alone do not count. */
  async changes(id: string, since: string, params: { limit?: number } = {}, options: CallOptions = {}): Promise<SnapshotChanges> {
    return this.#transport.json({ path: `${path(id)}/changes`, query: { since, ...params }, ...options });
  }

  /** Frees a snapshot. A paused sandbox must not be asleep in it. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: path(id), ...options });
  }

  /** Returns a snapshot as one archive, of any size, to be imported on another server. */
  async export(id: string, options: ExportOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { passphrase, signal } = options;
    const call = { path: `${path(id)}/export`, headers: sealed(passphrase), timeoutSeconds: 0, signal };
    return streamOf((await this.#transport.open(call)).chunks());
  }

  /**
   * Reads an archive and keeps it as a snapshot with a new id. Every byte is checked. Memory and processes are kept only of
   * an archive that this server signed, or one that its operator trusts; of any other `kind` is `files` and `detail` says why.
   */
  async import(archive: FileContent, options: ImportOptions = {}): Promise<Snapshot> {
    const { passphrase, name, signal } = options;
    const headers = { "Content-Type": "application/octet-stream", ...sealed(passphrase) };
    return this.#transport.json({ method: "POST", path: "/v1/snapshots/import", query: { name }, headers, body: toBody(archive), repeatable: false, timeoutSeconds: 0, signal });
  }

  /** Wakes the sandbox that is paused in a snapshot. With `memory: false` it restarts with its files. */
  async resume(id: string, options: CallOptions & ResumeParams = {}): Promise<Sandbox> {
    const call = { method: "POST", path: `${path(id)}/resume`, json: options.memory === undefined ? undefined : { memory: options.memory }, timeoutSeconds: startSeconds, signal: options.signal } as const;
    return new Sandbox(this.#transport, await this.#transport.json<SandboxInfo>(call));
  }
}

function path(id: string): string {
  return `/v1/snapshots/${encodeURIComponent(id)}`;
}
