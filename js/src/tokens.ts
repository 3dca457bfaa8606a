import type { CallOptions, Transport } from "./transport.js";
import type { Scope, Token } from "./types.js";

/** What a new key may do. */
export interface TokenParams {
  name?: string;
  project?: string;
  /** Default: everything that has to do with sandboxes. */
  scopes?: Scope[];
  expiresAt?: Date;
}

/** The keys of a server, for administrators. */
export class Tokens {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a key. The answer is the only place where its secret is shown. */
  async create(params: TokenParams = {}, options: CallOptions = {}): Promise<Token> {
    return this.#transport.json({ method: "POST", path: "/v1/tokens", json: params, ...options });
  }

  /** Lists the keys, without their secrets. */
  async list(options: CallOptions = {}): Promise<Token[]> {
    return (await this.#transport.json<{ items: Token[] }>({ path: "/v1/tokens", ...options })).items;
  }

  /** Revokes a key at once. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: `/v1/tokens/${encodeURIComponent(id)}`, ...options });
  }
}
