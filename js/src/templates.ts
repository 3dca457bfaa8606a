import { packContext, packFiles } from "./buildcontext.js";
import { BothyError, ConnectionError, ConflictError, errorOf, InvalidArgumentError } from "./errors.js";
import { localPath, streamOf } from "./transfer.js";
import type { CallOptions, Transport } from "./transport.js";
import type { Build, BuildEvent, PushedTemplate, Template, TemplateBuildParams, TemplateParams } from "./types.js";

const buildsPath = "/v1/templates/builds";
const maxRejoins = 10;

/** Options of {@link Templates.build}. */
export interface BuildOptions extends CallOptions {
  /** Called with every step. */
  onProgress?: (event: BuildEvent) => void;
}

/** Options of {@link Templates.push}. */
export interface PushOptions extends CallOptions {
  /** The login for the registry. It is in no record and no log. */
  registries?: { host: string; username: string; password: string }[];
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

  /**
   * Builds a template: from a recipe or a Dockerfile, from an image, or, with none of them, the built-in one of that name.
   * It can be used when the promise is fulfilled.
   */
  async build(params: TemplateParams | TemplateBuildParams, options: BuildOptions = {}): Promise<Template> {
    if (isRecipe(params)) return this.waitForBuild(await this.startBuild(params, { signal: options.signal }), options);
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
   * Starts to build a template from a recipe or a Dockerfile. The build runs on the server. A
   * request that is the same as that of a build under way gets that one.
   */
  async startBuild(params: TemplateBuildParams, options: CallOptions = {}): Promise<Build> {
    const { recipe, dockerfile, context, secrets, ...rest } = params;
    if (recipe && dockerfile !== undefined) throw new InvalidArgumentError({ code: "invalid_argument", detail: "give a recipe or a Dockerfile, and not both" });
    const json: Record<string, unknown> = { ...rest, dockerfile: recipe?.dockerfile ?? dockerfile, start: recipe?.started };
    if (secrets) json.secrets = Object.entries(secrets).map(([id, value]) => ({ id, value }));
    if (context !== undefined || recipe?.sources.length) json.contextId = (await this.#upload(params, options)).id;
    return this.#transport.json({ method: "POST", path: buildsPath, json, ...options });
  }

  async #upload({ recipe, context = ".", file = "Dockerfile" }: TemplateBuildParams, { signal }: CallOptions): Promise<{ id: string }> {
    const body =
      context instanceof Blob ? context
      : typeof context === "string" || context instanceof URL ? streamOf(packContext(await localPath(context), file, recipe?.sources))
      : await packFiles(context, file);
    return this.#transport.json({ method: "POST", path: "/v1/templates/contexts", headers: { "Content-Type": "application/x-tar" }, body, repeatable: false, timeoutSeconds: 0, signal });
  }

  /** Follows a build from its beginning to its end, and returns what it has made. */
  async waitForBuild(build: Build | string, { onProgress, signal }: BuildOptions = {}): Promise<Template> {
    const path = buildPath(build);
    let seen = 0;
    for (let failures = 0; ; failures++) {
      try {
        for await (const event of this.#transport.events<BuildEvent>({ path: `${path}/logs`, query: { from: seen }, signal })) {
          seen++;
          failures = 0;
          onProgress?.(event);
          if (event.template) return event.template;
        }
        const ended = await this.#transport.json<Build>({ path, signal });
        if (ended.state === "failed" || ended.state === "cancelled") throw buildError(ended);
      } catch (error) {
        if (!(error instanceof ConnectionError) || failures >= maxRejoins) throw error;
      }
      await this.#transport.pause(Math.min(failures, maxRejoins), signal);
    }
  }

  /** Lists the project's builds from recipes and Dockerfiles, newest first. */
  async builds(options: CallOptions = {}): Promise<Build[]> {
    return (await this.#transport.json<{ items: Build[] }>({ path: buildsPath, ...options })).items;
  }

  /** Finds a build by its id. */
  async getBuild(id: string, options: CallOptions = {}): Promise<Build> {
    return this.#transport.json({ path: buildPath(id), ...options });
  }

  /** Ends a build that has not ended. Nothing of it is left but its log. */
  async cancelBuild(build: Build | string, options: CallOptions = {}): Promise<Build> {
    return this.#transport.json({ method: "DELETE", path: buildPath(build), ...options });
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

  /** Lists what package managers have installed in a template, for scanners: SPDX 2.3 or CycloneDX 1.6. */
  async sbom(name: string, format: "spdx" | "cyclonedx" = "spdx", options: CallOptions = {}): Promise<unknown> {
    return this.#transport.read({ path: `/v1/sboms/${encodeURIComponent(name)}`, query: { format }, ...options }, (response) => response.json());
  }

  /** Returns how a template was made, and from what: an in-toto statement with SLSA provenance 1.0, as the server recorded it. */
  async provenance(name: string, options: CallOptions = {}): Promise<unknown> {
    return this.#transport.read({ path: `/v1/provenance/${encodeURIComponent(name)}`, ...options }, (response) => response.json());
  }

  /**
   * Writes a template to a registry, as an image that any container engine can run.
   *
   * @param reference Where to, such as `registry.example.com/team/app:v3`.
   */
  async push(name: string, reference: string, { registries, signal }: PushOptions = {}): Promise<PushedTemplate> {
    return this.#transport.json({ method: "POST", path: `${path(name)}/push`, json: { reference, registries }, repeatable: false, timeoutSeconds: 0, signal });
  }

  /** Deletes a template. No sandbox must need it. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.empty({ method: "DELETE", path: path(name), ...options });
  }
}

function path(name: string): string {
  return `/v1/templates/${encodeURIComponent(name)}`;
}

function buildPath(build: Build | string): string {
  return `${buildsPath}/${encodeURIComponent(typeof build === "string" ? build : build.id)}`;
}

function isRecipe(params: TemplateParams | TemplateBuildParams): params is TemplateBuildParams {
  const made = "recipe" in params || "dockerfile" in params || "context" in params;
  if (made && "image" in params) throw new InvalidArgumentError({ code: "invalid_argument", detail: "give an image, a recipe or a Dockerfile; not two" });
  return made;
}

/** The error that a build which has not succeeded stands for. */
function buildError({ id, name, state, code = "", error = "", hint }: Build): BothyError {
  if (state === "cancelled") return new ConflictError({ code: "conflict", detail: `the build ${id} of ${name} was cancelled.` });
  return errorOf({ code, detail: error, hint });
}
