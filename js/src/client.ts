import { Sandboxes } from "./sandboxes.js";
import { Snapshots } from "./snapshots.js";
import { Templates } from "./templates.js";
import { Tokens } from "./tokens.js";
import { eventsOf, type EventOptions } from "./events.js";
import { type BothyOptions, type CallOptions, Transport } from "./transport.js";
import type { BothyEvent, Limits } from "./types.js";

/** What a project has used, as the server describes it. */
export type Usage = Record<string, unknown>;

/** Options of {@link Bothy.usage}. */
export interface UsageOptions extends CallOptions {
  from?: Date;
  to?: Date;
  groupBy?: string;
}

/**
 * A server and a key, for reuse.
 *
 * ```ts
 * const bothy = new Bothy({ url: "http://127.0.0.1:7700", apiKey });
 * const sbx = await bothy.sandboxes.create({ template: "node-22" });
 * ```
 */
export class Bothy {
  /** Sandboxes: create, find, wake. */
  readonly sandboxes: Sandboxes;
  /** Snapshots: find, wake, delete. */
  readonly snapshots: Snapshots;
  /** Templates: find, build, delete. */
  readonly templates: Templates;
  /** Keys, for administrators. */
  readonly tokens: Tokens;
  readonly #transport: Transport;

  constructor(options: BothyOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.templates = new Templates(this.#transport);
    this.tokens = new Tokens(this.#transport);
  }

  /** Returns what the project may use, and what is in use. */
  async limits(options: CallOptions = {}): Promise<Limits> {
    return this.#transport.json({ path: "/v1/limits", ...options });
  }

  /** Returns the meters. */
  async usage({ signal, ...query }: UsageOptions = {}): Promise<Usage> {
    return this.#transport.json({ path: "/v1/usage", query: { ...query }, signal });
  }

  /** Yields what has happened in the project, and then what happens, until the caller leaves the loop. */
  events(options: EventOptions = {}): AsyncGenerator<BothyEvent, void, undefined> {
    return eventsOf(this.#transport, options);
  }
}
