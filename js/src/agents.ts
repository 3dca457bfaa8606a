import type { CallOptions, Transport } from "./transport.js";
import type { AgentAttachment, CreateParams } from "./types.js";

/** How to attach an environment of managed agents. */
export interface AttachParams {
  /** The environment's id. */
  environment: string;
  /** Its key. The server keeps it encrypted, and never shows it. */
  key: string;
  /** The service, if it is not Anthropic's. */
  url?: string;
  /** What a session's sandbox is made from. */
  sandbox?: Omit<CreateParams, "name">;
  /** Tools of the agent's own: commands in the sandbox that get the input as JSON and print the result. */
  tools?: { name: string; command: string }[];
  /** How many sessions are served at once. Default 10. */
  maxSessions?: number;
}

/** The self-hosted environments of Claude Managed Agents that the server works for, for administrators. */
export class Agents {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Has the server work for an environment: each session gets a sandbox, in which its tools run. An
   * environment that is attached gets the new key and choices, and its sessions continue.
   */
  async attach({ signal, ...params }: AttachParams & CallOptions): Promise<AgentAttachment> {
    return this.#transport.json({ method: "POST", path: "/v1/agents", json: params, signal });
  }

  /** Lists the attached environments, oldest first. */
  async list(options: CallOptions = {}): Promise<AgentAttachment[]> {
    return (await this.#transport.json<{ items: AgentAttachment[] }>({ path: "/v1/agents", ...options })).items;
  }

  /** Finds an attached environment, by its attachment's id or its own. */
  async get(id: string, options: CallOptions = {}): Promise<AgentAttachment> {
    return this.#transport.json({ path: `/v1/agents/${encodeURIComponent(id)}`, ...options });
  }

  /** Stops working for an environment. Its key is deleted, and the sandboxes of its sessions are paused. */
  async detach(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: `/v1/agents/${encodeURIComponent(id)}`, ...options });
  }
}
