import { type Page, PageList } from "./page.js";
import type { CallOptions, Transport } from "./transport.js";
import type { AuditRecord } from "./types.js";

/** Options of {@link Bothy.audit}. */
export interface AuditOptions extends CallOptions {
  /** Only from this time on. */
  since?: Date;
  /** Only before this time. */
  until?: Date;
  /** Only this action, such as `exec` or `mcp:run_shell`. */
  action?: string;
  /** Only what the key with this id did. */
  token?: string;
  /** Only what was done to the sandbox with this id. */
  sandbox?: string;
  /** Only this project. */
  project?: string;
  /** Only requests answered with 401, 403 or 404. */
  refused?: boolean;
  /** Which come first. Default: the newest. */
  order?: "newest" | "oldest";
  /** How many of a page, 1 to 1000. Default: 100. */
  limit?: number;
  /** Continue after the record with this id, or with a page's `nextCursor`. */
  cursor?: number | string;
}

/** @internal */
export function auditOf(transport: Transport, { signal, cursor, ...query }: AuditOptions): PageList<AuditRecord> {
  const fetch = (from?: string): Promise<Page<AuditRecord>> => transport.json({ path: "/v1/audit", query: { ...query, cursor: from }, signal });
  return new PageList(fetch, cursor?.toString());
}
