import type { CallOptions, Transport } from "./transport.js";
import type { Webhook, WebhookTest } from "./types.js";

/** What a webhook is. */
export interface WebhookParams {
  /** Where events are sent, by http or https. */
  url?: string;
  /** A name for people. */
  name?: string;
  /** The types of events that are sent, such as `sandbox.ended`; all when empty. */
  events?: readonly string[];
  /** What requests are signed with, 8 to 512 characters. */
  secret?: string;
}

/** The project's webhooks, for administrators. */
export class Webhooks {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a webhook, to which the project's events from now on are sent. Only here does it have
   * its secret, which is made where none is given. Fails with an `InvalidArgumentError` for an
   * address or a type of events that cannot be.
   */
  async create(url: string, { signal, ...params }: Omit<WebhookParams, "url"> & { disabled?: boolean } & CallOptions = {}): Promise<Webhook> {
    return this.#transport.json({ method: "POST", path: "/v1/webhooks", json: { url, ...params }, signal });
  }

  /** Lists the project's webhooks, oldest first. */
  async list(options: CallOptions = {}): Promise<Webhook[]> {
    return (await this.#transport.json<{ items: Webhook[] }>({ path: "/v1/webhooks", ...options })).items;
  }

  /** Finds a webhook, with the state of its deliveries. */
  async get(id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.#transport.json({ path: `/v1/webhooks/${encodeURIComponent(id)}`, ...options });
  }

  /** Changes a webhook. Pending events are retried at once; an enabled webhook continues where it stopped. */
  async update(id: string, params: WebhookParams & { enabled?: boolean }, options: CallOptions = {}): Promise<Webhook> {
    return this.#transport.json({ method: "PATCH", path: `/v1/webhooks/${encodeURIComponent(id)}`, json: params, ...options });
  }

  /** Deletes a webhook. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: `/v1/webhooks/${encodeURIComponent(id)}`, ...options });
  }

  /** Sends an event of the type `webhook.test`, once, and tells what the receiver answered. */
  async test(id: string, options: CallOptions = {}): Promise<WebhookTest> {
    return this.#transport.json({ method: "POST", path: `/v1/webhooks/${encodeURIComponent(id)}/test`, ...options });
  }
}
