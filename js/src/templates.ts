import { BothyError, ConnectionError } from "./errors.js";
import type { CallOptions, Transport } from "./transport.js";
import type { BuildEvent, Template, TemplateParams } from "./types.js";

/** Options of {@link Templates.build}. */
export interface BuildOptions extends CallOptions {
  /** Called with every step. */
  onProgress?: (event: BuildEvent) => void;
}

/** What sandboxes start from. */
export class Templates {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists what there is, by name. */
  async list(options: CallOptions = {}): Promise<Template[]> {
    return (await this.#transport.json<{ items: Template[] }>({ path: "/v1/templates", ...options })).items;
  }

  /** Finds a template. */
  async get(name: string, options: CallOptions = {}): Promise<Template> {
    return this.#transport.json({ path: path(name), ...options });
  }

  /** Builds a template. It can be used when the promise is fulfilled. */
  async build(params: TemplateParams, options: BuildOptions = {}): Promise<Template> {
    const { onProgress, signal } = options;
    const call = { method: "POST", path: "/v1/templates", json: params, timeoutSeconds: 0, repeatable: false, signal } as const;
    for await (const event of this.#transport.events<BuildEvent>(call)) {
      onProgress?.(event);
      if (event.error) throw new BothyError({ code: "template_invalid", detail: event.error });
      if (event.template) return event.template;
    }
    throw new ConnectionError({ code: "connection_failed", detail: "the stream of the build's progress ended before the build did." });
  }

  /**
   * Gives a template of the project more tags, and returns it by each of them. A tag that
   * another image had moves; what was started from that image stays as it is.
   *
   * @param name NAME, NAME:TAG or NAME@DIGEST.
   */
  async tag(name: string, tags: readonly string[], options: CallOptions = {}): Promise<Template[]> {
    const call = { method: "POST", path: `${path(name)}/tags`, json: { tags }, ...options } as const;
    return (await this.#transport.json<{ items: Template[] }>(call)).items;
  }

  /** Deletes a template. No sandbox must need it. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: path(name), ...options });
  }
}

function path(name: string): string {
  return `/v1/templates/${encodeURIComponent(name)}`;
}
