import { Agents } from "./agents.js";
import { auditOf, type AuditOptions } from "./audit.js";
import { Projects } from "./projects.js";
import { Sandboxes } from "./sandboxes.js";
import { Snapshots } from "./snapshots.js";
import { Templates } from "./templates.js";
import { Tokens } from "./tokens.js";
import { Webhooks } from "./webhooks.js";
import { eventsOf, type EventOptions } from "./events.js";
import { type BothyOptions, type Call, type CallOptions, Transport } from "./transport.js";
import type { PageList } from "./page.js";
import type { AuditCheck, AuditRecord, BothyEvent, Host, Limits, SandboxMetrics, UsageItem, UsageReport } from "./types.js";

/** A page of a report, with times as text. */
type UsagePage = Omit<UsageReport, "from" | "to" | "asOf"> & { from: string; to: string; asOf: string; nextCursor?: string };

/** Options of {@link Bothy.usage}. */
export interface UsageOptions extends CallOptions {
  /** From when; by default the beginning of this month. */
  from?: Date;
  /** Until when, exclusive; now by default. */
  to?: Date;
  /** `day` (the default) or `hour`, `project`, `template`, `sandbox`, and `label:KEY` for a key of the metadata. */
  groupBy?: string | readonly string[];
  /** Only this project. Only the operator sees projects other than their own. */
  project?: string;
  /** Only this sandbox and its snapshots. */
  sandbox?: string;
  /** Only sandboxes of this template. */
  template?: string;
}

/** Options of {@link Bothy.request}. */
export interface RequestOptions extends CallOptions {
  /** Query parameters; those that are undefined are left out. */
  query?: Call["query"];
  /** What to send as the body. */
  json?: unknown;
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
  /** Projects: find; create and change, for the operator. */
  readonly projects: Projects;
  /** Environments of Claude Managed Agents that the server works for, for administrators. */
  readonly agents: Agents;
  /** Webhooks, for administrators. */
  readonly webhooks: Webhooks;
  readonly #transport: Transport;

  constructor(options: BothyOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.templates = new Templates(this.#transport);
    this.tokens = new Tokens(this.#transport);
    this.projects = new Projects(this.#transport);
    this.agents = new Agents(this.#transport);
    this.webhooks = new Webhooks(this.#transport);
  }

  /**
   * Calls the REST API directly and returns the decoded JSON, or `undefined` for no content. Names are
   * those of the API, such as `created_at`.
   *
   * @param path The path with its version, such as `/v1/limits`.
   */
  async request(method: NonNullable<Call["method"]>, path: string, { query, json, signal }: RequestOptions = {}): Promise<unknown> {
    const sent = json === undefined ? {} : { body: JSON.stringify(json), headers: { "Content-Type": "application/json" } };
    return this.#transport.read({ method, path, query, signal, ...sent }, async (response) => {
      const text = await response.text();
      return text === "" ? undefined : (JSON.parse(text) as unknown);
    });
  }

  /** Returns the project's limits, and how much is in use. */
  async limits(options: CallOptions = {}): Promise<Limits> {
    return this.#transport.json({ path: "/v1/limits", ...options });
  }

  /** Returns the capacity of the server's host, its pool, and findings about it. For the operator. */
  async host(options: CallOptions = {}): Promise<Host> {
    return this.#transport.json({ path: "/v1/host", ...options });
  }

  /** Returns the latest measurement of every running sandbox; they are measured every ten seconds. */
  async metrics(options: CallOptions = {}): Promise<SandboxMetrics[]> {
    return (await this.#transport.json<{ items: SandboxMetrics[] }>({ path: "/v1/metrics", ...options })).items;
  }

  /** Returns an id for {@link EventOptions.since}, above which are only events that happen from now on. */
  async lastEvent(options: CallOptions = {}): Promise<number> {
    return Number((await this.#transport.json<{ nextCursor: string }>({ path: "/v1/events", query: { new: true }, ...options })).nextCursor);
  }

  /** Returns usage, and what it costs. */
  async usage({ signal, groupBy, from, to, ...query }: UsageOptions = {}): Promise<UsageReport> {
    const by = typeof groupBy === "object" ? groupBy.join(",") : groupBy;
    const items: UsageItem[] = [];
    for (let cursor: string | undefined; ; ) {
      const page: UsagePage = await this.#transport.json({ path: "/v1/usage", query: { ...query, from, to, groupBy: by, limit: 10_000, cursor }, signal });
      const { nextCursor, ...report } = page;
      items.push(...report.items);
      [from, to] = [new Date(report.from), new Date(report.to)];
      if (!nextCursor) return { ...report, from, to, asOf: new Date(report.asOf), items };
      cursor = nextCursor;
    }
  }

  /** Yields the project's events, past and new, until you leave the loop. */
  events(options: EventOptions = {}): AsyncGenerator<BothyEvent, void, undefined> {
    return eventsOf(this.#transport, options);
  }

  /**
   * Returns who did what, newest first: `await` it for one page, or loop over it with `for await`.
   * For administrators. The operator sees all projects, and others only their own.
   */
  audit(options: AuditOptions = {}): PageList<AuditRecord> {
    return auditOf(this.#transport, options);
  }

  /**
   * Checks that the audit was not altered. For the operator.
   *
   * @param kept A record's id and hash from an earlier check: verifies that nothing up to there was rewritten.
   */
  async checkAudit(kept?: { at: number; head: string }, options: CallOptions = {}): Promise<AuditCheck> {
    return this.#transport.json({ path: "/v1/audit/verify", query: kept && { at: kept.at, head: kept.head }, ...options });
  }
}
