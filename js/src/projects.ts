import type { CallOptions, Transport } from "./transport.js";
import type { Project } from "./types.js";

/** What a project may use. */
export interface ProjectParams {
  /** `starter` (the default of a new one), `pro`, `team` or `unlimited`. */
  plan?: string;
  /** What it may spend in a month, in the currency of the server's rates; 0 is no limit. */
  budget?: number;
}

/** The projects of a server. Only the operator can create and change them, and sees all. */
export class Projects {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates a project. Fails with a `ConflictError` if there is one with this name. */
  async create(id: string, params: ProjectParams = {}, options: CallOptions = {}): Promise<Project> {
    return this.#transport.json({ method: "POST", path: "/v1/projects", json: { id, ...params }, ...options });
  }

  /** Lists the projects that the key may see. */
  async list(options: CallOptions = {}): Promise<Project[]> {
    return (await this.#transport.json<{ items: Project[] }>({ path: "/v1/projects", ...options })).items;
  }

  /** Finds a project. */
  async get(id: string, options: CallOptions = {}): Promise<Project> {
    return this.#transport.json({ path: `/v1/projects/${encodeURIComponent(id)}`, ...options });
  }

  /** Changes a project. A smaller plan leaves running sandboxes alone; it only refuses more. */
  async update(id: string, params: ProjectParams, options: CallOptions = {}): Promise<Project> {
    return this.#transport.json({ method: "PATCH", path: `/v1/projects/${encodeURIComponent(id)}`, json: params, ...options });
  }
}
