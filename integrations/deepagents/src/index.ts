/**
 * Bothy sandboxes as backends of LangChain's deepagents.
 *
 * @packageDocumentation
 */
import { FileNotFoundInSandboxError, InvalidArgumentError, IsADirectoryInSandboxError, NotADirectoryInSandboxError, PermissionDeniedError, Sandbox } from "bothy";
import type { Connection, CreateParams, ExecResult } from "bothy";
import { BaseSandbox } from "deepagents";
import type { ExecuteResponse, FileDownloadResponse, FileOperationError, FileUploadResponse } from "deepagents";
import { checkVersion } from "./tested.js";

/** How a {@link BothySandbox} runs commands. */
export interface BackendOptions {
  /** Ends a command after so long, with all that it started; 0 for never. Default 1800. */
  timeoutSeconds?: number;
}

/** How one command is run. */
export interface ExecuteOptions extends BackendOptions {
  /** Ends the command when aborted. */
  signal?: AbortSignal;
}

/** Where deepagents leaves files of its own, which the sandbox's user could not make. */
const artifacts = ["/large_tool_results", "/conversation_history"];

/**
 * One sandbox as a backend of `createDeepAgent`. Whoever made the sandbox ends it.
 *
 * ```ts
 * const agent = createDeepAgent({ model, backend: new BothySandbox(sandbox) });
 * ```
 */
export class BothySandbox extends BaseSandbox {
  /** The sandbox itself. */
  readonly sandbox: Sandbox;
  readonly #timeoutSeconds: number;
  #prepared: Promise<unknown> | undefined;

  constructor(sandbox: Sandbox, options: BackendOptions = {}) {
    super();
    checkVersion();
    const { timeoutSeconds = 1800 } = options;
    if (!(timeoutSeconds >= 0)) throw new RangeError(`timeoutSeconds is ${timeoutSeconds}: it must be 0, for never, or more`);
    this.sandbox = sandbox;
    this.#timeoutSeconds = timeoutSeconds;
  }

  /** Makes a sandbox for a backend. `await using` ends it. */
  static async create(params: CreateParams & Connection = {}, options: BackendOptions = {}): Promise<BothySandbox> {
    return new BothySandbox(await Sandbox.create(params), options);
  }

  /** The sandbox's id. */
  get id(): string {
    return this.sandbox.id;
  }

  /** Runs a command. A time-out is the exit code 124, and a last line that says so. */
  async execute(command: string, options: ExecuteOptions = {}): Promise<ExecuteResponse> {
    const { timeoutSeconds = this.#timeoutSeconds, signal } = options;
    const result = await this.sandbox.exec(command, { timeoutSeconds: timeoutSeconds || undefined, mergeStderr: true, signal });
    return response(result, timeoutSeconds);
  }

  /** Writes files, and the folders above them. */
  async uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]> {
    const done: FileUploadResponse[] = [];
    for (const [path, content] of files) {
      const { error } = await orError(path, async () => {
        await this.#prepare(path);
        await this.sandbox.files.write(path, content);
      });
      done.push({ path, error });
    }
    return done;
  }

  /** Reads files, byte for byte. */
  async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    const done: FileDownloadResponse[] = [];
    for (const path of paths) {
      const { value: content, error } = await orError(path, () => this.sandbox.files.readBytes(path));
      done.push({ path, content, error });
    }
    return done;
  }

  /** Ends the sandbox. */
  async close(): Promise<void> {
    await this.sandbox.terminate();
  }

  /** Ends the sandbox; `await using` calls it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #prepare(path: string): Promise<void> {
    if (!artifacts.some((folder) => path.startsWith(`${folder}/`))) return;
    this.#prepared ??= this.sandbox.exec(["mkdir", "-p", "-m", "1777", ...artifacts], { user: "root" }).then((made) => made.check());
    await this.#prepared;
  }
}

const names: [new (...args: never[]) => Error, FileOperationError][] = [
  [FileNotFoundInSandboxError, "file_not_found"],
  [PermissionDeniedError, "permission_denied"],
  [IsADirectoryInSandboxError, "is_directory"],
  [NotADirectoryInSandboxError, "invalid_path"],
  [InvalidArgumentError, "invalid_path"],
];

/** Does something with a file, and names a failure in the framework's words. What it has no word for, such as a sandbox that has ended, is thrown. */
async function orError<T>(path: string, work: () => Promise<T>): Promise<{ value: T; error: null } | { value: null; error: FileOperationError }> {
  if (!path.startsWith("/")) return { value: null, error: "invalid_path" };
  try {
    return { value: await work(), error: null };
  } catch (error) {
    const name = names.find(([kind]) => error instanceof kind)?.[1];
    if (name === undefined) throw error;
    return { value: null, error: name };
  }
}

function response({ stdout, exitCode, timedOut, truncated, hint }: ExecResult, seconds: number): ExecuteResponse {
  if (timedOut) return { output: `${stdout}\n[the command was ended after ${seconds} seconds]`, exitCode: 124, truncated };
  return { output: hint ? `${stdout}\n[${hint}]` : stdout, exitCode, truncated };
}
