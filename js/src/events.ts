import { ConnectionError } from "./errors.js";
import { type Page, PageList } from "./page.js";
import type { CallOptions, Transport } from "./transport.js";
import type { BothyEvent } from "./types.js";

/** Options of {@link Bothy.events} and {@link Sandbox.events}. */
export interface EventOptions extends CallOptions {
  /** Begin after the event with this id. Default: with the first that is still known. */
  since?: number;
  /** Only events of the sandbox with this id. */
  sandboxId?: string;
  /** False to end with the last event that has happened. Default true: new ones are waited for. */
  follow?: boolean;
  /** False to be told when the connection breaks or the server ends it, instead of joining again. Default true. */
  rejoin?: boolean;
}

const maxRejoins = 10;

/**
 * Yields events.
 *
 * @internal
 */
export async function* eventsOf(transport: Transport, options: EventOptions): AsyncGenerator<BothyEvent, void, undefined> {
  const events = options.follow === false ? pastEvents(transport, options) : followEvents(transport, options);
  const { sandboxId } = options;
  for await (const event of events) if (!sandboxId || event.sandboxId === sandboxId) yield event; // an older server sends all
}

function pastEvents(transport: Transport, { since, sandboxId, signal }: EventOptions): PageList<BothyEvent> {
  const fetch = (cursor?: string): Promise<Page<BothyEvent>> => transport.json({ path: "/v1/events", query: { since: cursor, sandbox_id: sandboxId, limit: 1000 }, signal });
  return new PageList(fetch, since?.toString());
}

/** When the connection breaks, it continues after the last event that was seen. */
async function* followEvents(transport: Transport, { since, sandboxId, signal, rejoin = true }: EventOptions): AsyncGenerator<BothyEvent, void, undefined> {
  for (let failures = 0; ; failures++) {
    try {
      for await (const event of transport.events<BothyEvent>({ path: "/v1/events", query: { since, sandbox_id: sandboxId }, signal })) {
        since = event.id;
        failures = 0;
        yield event;
      }
    } catch (error) {
      if (!(error instanceof ConnectionError) || !rejoin || failures >= maxRejoins) throw error;
    }
    if (!rejoin) return;
    await transport.pause(Math.min(failures, maxRejoins), signal);
  }
}
