/**
 * A provider for ComputeSDK that hands out Bothy sandboxes.
 *
 * @packageDocumentation
 */
import { defineProvider, TIMEOUT_EXIT_CODE } from "@computesdk/provider";
import type { CommandResult, CreateSandboxOptions, CreateTemplateOptions, Provider, ProviderTemplateManager, RunCommandOptions, SandboxInfo } from "@computesdk/provider";
import { Bothy, NotFoundError } from "bothy";
import type { CreateParams, LinkOptions, Sandbox, SandboxState, Snapshot, Template, TemplateBuildParams, TemplateParams } from "bothy";
import { checkVersion } from "./tested.js";

/** How {@link bothy} reaches the server, and what its sandboxes are. */
export interface BothyConfig {
  /** The server. Default: `BOTHY_URL`, then the credentials file. */
  url?: string;
  /** The key. Default: `BOTHY_API_KEY`, then the credentials file. */
  apiKey?: string;
  /** A client to use instead of `url` and `apiKey`. */
  client?: Bothy;
  /** What a sandbox is, in Bothy's own words and units, where the options of `create` say nothing about it. */
  defaults?: CreateParams;
  /** The links that `getUrl` makes. Default: for a browser, for an hour. */
  links?: Pick<LinkOptions, "kind" | "expiresSeconds">;
}

/** What a template is made from: a sandbox as it is, or what Bothy's `templates.build` takes. */
export type TemplateOptions = CreateTemplateOptions & ({ sandboxId: string; memory?: boolean } | Omit<TemplateParams, "name"> | Omit<TemplateBuildParams, "name">);

/** The provider that {@link bothy} returns. */
export type BothyProvider = Provider<Sandbox, Template, Snapshot> & { readonly template: ProviderTemplateManager<Template, TemplateOptions>; readonly snapshot: NonNullable<Provider<Sandbox, Template, Snapshot>["snapshot"]> };

const runtimes: Record<string, string> = { node: "node-22", python: "python-3.12" };

/**
 * Returns a provider whose sandboxes are Bothy's.
 *
 * ```ts
 * const compute = createCompute({ defaultProvider: bothy() });
 * const sandbox = await compute.sandbox.create({ templateId: "python-3.12" });
 * ```
 */
export function bothy(config: BothyConfig = {}): BothyProvider {
  checkVersion();
  const { client = new Bothy({ url: config.url, apiKey: config.apiKey }), defaults, links } = config;
  const named = (sandbox: Sandbox): { sandbox: Sandbox; sandboxId: string } => ({ sandbox, sandboxId: sandbox.id });

  // The methods of a sandbox are not told the configuration, so that they are made again with each.
  const provider = defineProvider<Sandbox, BothyConfig, Template, Snapshot>({
    name: "bothy",
    methods: {
      sandbox: {
        create: async (_, options) => named(await client.sandboxes.create({ ...defaults, ...params(options) }, { signal: options?.signal })),
        getById: async (_, id) => {
          const sandbox = await orMissing(client.sandboxes.get(id));
          return sandbox && !hasEnded(sandbox.info.state) ? named(sandbox) : null;
        },
        list: async () => (await client.sandboxes.list({ live: true }).all()).map(named),
        destroy: async (_, id) => {
          const sandbox = await orMissing(client.sandboxes.get(id));
          await orMissing(sandbox?.terminate() ?? Promise.resolve());
        },
        runCommand: run,
        streamCommand: run,
        getInfo: async (sandbox) => describe(sandbox),
        getUrl: async (sandbox, { port, protocol }) => {
          const url = await sandbox.url(port, { ...links });
          return protocol === "ws" || protocol === "wss" ? url.replace(/^http/, "ws") : url;
        },
        filesystem: {
          readFile: async (sandbox, path) => text(await sandbox.files.readBytes(path), path),
          writeFile: async (sandbox, path, content) => void (await sandbox.files.write(path, content)),
          mkdir: async (sandbox, path) => void (await sandbox.files.mkdir(path)),
          readdir: async (sandbox, path) => {
            const entries = await sandbox.files.list(path);
            return entries.map(({ name, type, size, modifiedAt }) => ({ name, type: type === "directory" ? ("directory" as const) : ("file" as const), size, modified: modifiedAt }));
          },
          exists: (sandbox, path) => sandbox.files.exists(path),
          remove: (sandbox, path) => sandbox.files.remove(path),
        },
      },
      template: {
        create: async (_, options) => makeTemplate(client, options as TemplateOptions),
        list: async (_, options) => (await client.templates.list()).slice(0, options?.limit),
        delete: (_, name) => client.templates.delete(name),
      },
      snapshot: {
        create: async (_, id, options) => {
          if (options?.metadata) throw new Error("a snapshot of Bothy has no metadata. Give it a name.");
          return (await client.sandboxes.get(id)).snapshot({ name: options?.name });
        },
        list: async (_, options = {}) => {
          const found: Snapshot[] = [];
          if (options.limit === 0) return found;
          for await (const snapshot of client.snapshots.list({ sandboxId: options.sandboxId })) {
            if (found.push(snapshot) === options.limit) break;
          }
          return found;
        },
        delete: (_, id) => client.snapshots.delete(id),
      },
    },
  });
  return provider(config) as BothyProvider;
}

/** Says the options of ComputeSDK in Bothy's words. Those that are not given are left out, so that defaults show through. */
function params(options: CreateSandboxOptions = {}): CreateParams {
  const { timeout, templateId, snapshotId, metadata, envs, name, runtime, image, directory, size } = options;
  if (image !== undefined) throw new Error(`a sandbox starts from a template, not from the image ${image}. Make one with template.create({ name, image }), and give its name as templateId.`);
  if (directory !== undefined) throw new Error("a sandbox of Bothy starts its commands in /workspace. Give cwd to runCommand instead of directory.");
  if (runtime !== undefined && !runtimes[runtime]) throw new Error(`there is no template for the runtime ${runtime}. Give the name of a template as templateId.`);
  // Providers have names of their own for one thing; those of any are understood.
  const cpu = options.cpu ?? options.cpus ?? options.vcpus;
  const memoryMb = options.memoryMb ?? options.memoryMiB ?? options.memMiB ?? options.memory;
  const template = templateId ?? (runtime && runtimes[runtime]);
  return {
    ...(template !== undefined && { template }),
    ...(snapshotId !== undefined && { snapshotId, template: undefined }),
    ...(timeout !== undefined && { timeoutSeconds: Math.ceil(timeout / 1000) }),
    ...(cpu !== undefined && { cpu }),
    ...(memoryMb !== undefined && { memoryMb }),
    ...(options.diskMiB !== undefined && { diskMb: options.diskMiB }),
    ...(size !== undefined && { size: size as CreateParams["size"] }),
    ...(envs && { env: envs }),
    ...(name !== undefined && { name }),
    ...(metadata && { metadata: Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)])) }),
  };
}

/** Runs a command to its end, or only starts it. */
async function run(sandbox: Sandbox, command: string, options: RunCommandOptions = {}): Promise<CommandResult> {
  const { cwd, env, timeout, background, onStdout, onStderr } = options;
  const timeoutSeconds = timeout === undefined ? undefined : timeout / 1000;
  if (background) {
    const begun = performance.now();
    await sandbox.spawn(command, { cwd, env, timeoutSeconds });
    return { exitCode: 0, stdout: "", stderr: "", durationMs: performance.now() - begun };
  }
  const { exitCode, stdout, stderr, durationMs, timedOut, truncated } = await sandbox.exec(command, { cwd, env, timeoutSeconds, onStdout, onStderr });
  const cut = truncated ? "\n[output was dropped: it was too large]\n" : "";
  return { exitCode: timedOut ? TIMEOUT_EXIT_CODE : exitCode, stdout, stderr: stderr + cut, durationMs };
}

async function describe(sandbox: Sandbox): Promise<SandboxInfo> {
  const { id, state, createdAt, timeoutSeconds, metadata } = await sandbox.refresh();
  const status = state === "failed" ? "error" : hasEnded(state) || state === "paused" || state === "stopping" ? "stopped" : "running";
  return { id, provider: "bothy", status, createdAt, timeout: timeoutSeconds * 1000, metadata };
}

function hasEnded(state: SandboxState): boolean {
  return state === "stopped" || state === "failed";
}

async function makeTemplate(client: Bothy, options: TemplateOptions): Promise<Template> {
  const { name, description, metadata, ...source } = options;
  if (metadata) throw new Error("a template of Bothy has no metadata. Say it in its description.");
  if ("sandboxId" in source) {
    return (await client.sandboxes.get(source.sandboxId)).createTemplate(name, { description, memory: source.memory });
  }
  if (description !== undefined) throw new Error("only a template that is made from a sandbox takes a description. Leave it out.");
  return client.templates.build({ name, ...source });
}

async function orMissing<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  }
}

function text(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new Error(`${path} is a binary file, not UTF-8 text. Read it with getInstance().files.readBytes.`, { cause });
  }
}
